#!/bin/sh
# PostgreSQL for the tests of services on several machines, which start a server of their own. LABELWISE_POSTGRES=0 leaves the machine as it is.
if [ "${LABELWISE_POSTGRES:-1}" = 0 ]; then
  echo "PostgreSQL: not looked for (LABELWISE_POSTGRES=0)."
else
  sh "$(dirname "$0")/debian.sh" PostgreSQL "initdb /usr/lib/postgresql/*/bin/initdb" "the tests of services that share it" postgresql
fi
