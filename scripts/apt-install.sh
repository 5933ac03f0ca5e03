#!/usr/bin/env bash
# Installs the Debian packages that the arguments name, and says what went wrong if it cannot.
set -u
# Debian starts a server when it installs one; at this run level it does not.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1

# Runs the command, and says something only if it fails.
quietly() {
  local output
  output=$("$@" 2>&1 < /dev/null) && return
  printf '%s failed:\n%s\n' "$*" "$output" >&2
  return 1
}

# Another installation may be under way.
options=(-qq -o DPkg::Lock::Timeout=120)
# An installation that was cut off blocks all that follow until it is ended.
quietly dpkg --configure -a
# An archive that does not answer once is asked again.
for pause in 10 30 0; do
  # A list that could not be brought up to date may do.
  quietly apt-get "${options[@]}" update
  quietly apt-get "${options[@]}" -y --no-install-recommends install "$@" && exit 0
  sleep "$pause"
done
exit 1
