#!/bin/sh
# onnxruntime-web for the test of exported folders, from npm into the cache. LABELWISE_BROWSER=0 leaves the machine as it is.
version=1.30.0
cache="${XDG_CACHE_HOME:-$HOME/.cache}/labelwise/npm"
if [ -n "${LABELWISE_ONNX_WEB:-}" ] || [ -e "$cache/onnxruntime-web/dist/ort.wasm.min.mjs" ]; then
  exit 0
elif [ "${LABELWISE_BROWSER:-1}" = 0 ] || ! command -v npm >/dev/null 2>&1; then
  echo "onnxruntime-web: no npm, or LABELWISE_BROWSER=0; the tests of exported folders in a browser are skipped."
  exit 0
fi
mkdir -p "$cache"
part=$(mktemp -d "$cache/part.XXXXXX") && trap 'rm -rf "$part"' EXIT
if (cd "$part" && npm pack --silent "onnxruntime-web@$version" >/dev/null 2>&1 && tar -xzf ./*.tgz); then
  mv "$part/package" "$cache/onnxruntime-web"
  echo "onnxruntime-web $version: $cache/onnxruntime-web"
else
  echo "onnxruntime-web: npm cannot fetch it; the tests of exported folders in a browser are skipped."
fi
