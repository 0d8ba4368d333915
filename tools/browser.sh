#!/bin/sh
# Chromium for the tests of the page. LABELWISE_BROWSER=0 leaves the machine as it is, LABELWISE_CHROMIUM names another one.
if [ -n "${LABELWISE_CHROMIUM:-}" ]; then
  echo "Browser: $LABELWISE_CHROMIUM (LABELWISE_CHROMIUM)."
elif [ "${LABELWISE_BROWSER:-1}" = 0 ] && ! command -v chromium >/dev/null 2>&1; then
  echo "Browser: none, and LABELWISE_BROWSER=0; the tests of the page are skipped."
else
  sh "$(dirname "$0")/debian.sh" Browser chromium "the tests of the page" chromium fonts-dejavu-core
fi
