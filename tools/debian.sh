#!/bin/sh
# What tests need of the system, installed from Debian where it is missing and that can be done without asking:
#   sh tools/debian.sh WHAT PATTERN TESTS PACKAGE...
# WHAT and TESTS are said to the user, PATTERN is where the program is found. Never fails; says in one line what it did.
what=$1 pattern=$2 tests=$3
shift 3
program() {
  # shellcheck disable=SC2086 - a pattern
  for file in $pattern; do
    if command -v "$file" 2>/dev/null; then return; fi
  done
  return 1
}
skip() {
  echo "$what: $1; $tests are skipped."
  exit 0
}
if found=$(program); then
  echo "$what: $found."
  exit 0
fi
command -v apt-get >/dev/null 2>&1 || skip "not installed, and no apt-get to install it"
as=
if [ "$(id -u)" != 0 ]; then
  sudo -n true 2>/dev/null || skip "not installed, and installing it needs root"
  as="sudo -n"
fi
apt() {
  # shellcheck disable=SC2086
  timeout 400 $as env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=60 -o Acquire::Retries=2 "$@" </dev/null >/dev/null 2>&1
}
apt install -y --no-install-recommends "$@" || { apt update && apt install -y --no-install-recommends "$@"; }
if found=$(program); then
  echo "$what: installed $found with apt-get."
else
  skip "it could not be installed with apt-get"
fi
