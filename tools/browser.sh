#!/bin/sh
# Chromium for the tests of the page: installed from Debian where it is missing and that can be done without asking.
# Never fails; says in one line what it did. LABELWISE_BROWSER=0 leaves the machine as it is.
if [ -n "${LABELWISE_CHROMIUM:-}" ]; then
  echo "Browser: $LABELWISE_CHROMIUM (LABELWISE_CHROMIUM)."
  exit 0
fi
if command -v chromium >/dev/null 2>&1; then
  echo "Browser: $(command -v chromium)."
  exit 0
fi
skip() {
  echo "Browser: $1; the tests of the page are skipped."
  exit 0
}
[ "${LABELWISE_BROWSER:-1}" != 0 ] || skip "none, and LABELWISE_BROWSER=0"
command -v apt-get >/dev/null 2>&1 || skip "no chromium on the path, and no apt-get to install it"
as=
if [ "$(id -u)" != 0 ]; then
  sudo -n true 2>/dev/null || skip "no chromium on the path, and installing it needs root"
  as="sudo -n"
fi
apt() {
  # shellcheck disable=SC2086
  timeout 400 $as env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=60 -o Acquire::Retries=2 "$@" </dev/null >/dev/null 2>&1
}
install() { apt install -y --no-install-recommends chromium fonts-dejavu-core; }
install || { apt update && install; }
if chromium --version >/dev/null 2>&1; then
  echo "Browser: installed $(chromium --version 2>/dev/null) with apt-get."
else
  skip "chromium could not be installed with apt-get"
fi
