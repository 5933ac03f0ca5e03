#!/usr/bin/env bash
# Builds the Linux siw guest: a Debian kernel, the siw driver compiled from Debian's kernel source, and a
# small initramfs with the stock RDMA tools. Everything lands in .cache/ beside this script and nothing of it
# is committed.
#
#   build-guest.sh            build missing parts; with a warm cache this takes no time
#   build-guest.sh --rebuild  forget the cache first (takes a newer kernel, if Debian has one)
#
# SIW_KERNEL is the line of the kernel, 6.1 without it; kernels.txt has a row and a cache for each.
#
# Needs Debian 12 on x86-64 and root (or sudo) the first time, for apt-get. The host's kernel is not touched:
# the kernel image is unpacked, not installed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
started=$SECONDS

say() { echo "siw-guest: $*" >&2; }
fail() { say "$*"; exit 1; }
step() { say "[$((SECONDS - started)) s] $*"; }

table=$(grep -v '^#' "$here/kernels.txt")
row=$(awk -v line="${SIW_KERNEL:-}" '$1 == line || (line == "" && NR == 1)' <<<"$table")
lines=$(cut -d' ' -f1 <<<"$table" | paste -sd' ' | sed 's/ / or /g')
[ -n "$row" ] || fail "there is no guest with a kernel $SIW_KERNEL: set SIW_KERNEL to $lines"
read -r line meta_package source_package headers cache <<<"$row"
cache=$here/$cache
rebuild="SIW_KERNEL=$line conformance/siw/build-guest.sh --rebuild"

tool_packages=(
  qemu-system-x86 busybox-static cpio kmod iproute2 tcpdump xz-utils make util-linux coreutils dash procps
  rdma-core ibverbs-utils ibverbs-providers rdmacm-utils perftest qperf netcat-traditional iperf
  nbd-client e2fsprogs libfabric-bin fio
)
tools=(
  rping ucmatose rdma_client rdma_server rdma_xclient rdma_xserver rstream riostream rcopy cmtime udaddy
  ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_send_bw ib_send_lat ib_atomic_bw qperf
  ibv_devinfo ibv_devices ibv_rc_pingpong rdma tcpdump ip tc ss nc.traditional iperf stdbuf dash pkill
  nbd-client mke2fs e2fsck fi_pingpong
)
# Programs whose libraries would slow every boot down: an archive each, which a case fetches into the guest.
archived=(fio)
modules=(siw rdma_ucm e1000 veth sch_netem nbd ext4 crc32c_generic)

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo -n "$@"
  else fail "root is needed for: $*"
  fi
}

# The cache is good if it was made by these very files; a new kernel in Debian alone does not make it stale.
fingerprint() {
  { cat "$here/build-guest.sh" "$here/guest-init.sh" "$here/agent.sh"; echo "$row"; } |
    sha256sum | cut -d' ' -f1
}

missing_packages() {
  local name
  for name in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$name" 2>/dev/null)" = "ii " ] || echo "$name"
  done
}

refreshed=no
refresh_lists() {
  [ $refreshed = no ] || return 0
  refreshed=yes
  step "apt-get update"
  # One unreachable third-party list must not stop us: what counts is whether the install succeeds.
  as_root timeout 300 apt-get -qq -o DPkg::Lock::Timeout=120 update >&2 ||
    say "apt-get update complained; going on"
}

install_packages() {
  local wanted
  mapfile -t wanted < <(missing_packages "$@")
  [ ${#wanted[@]} -gt 0 ] || return 0
  refresh_lists
  step "installing ${wanted[*]}"
  # An installation that was cut off blocks all that follow until it is ended.
  as_root env DEBIAN_FRONTEND=noninteractive dpkg --configure -a >"$cache/apt.log" 2>&1 </dev/null ||
    say "dpkg could not end an earlier installation; going on"
  as_root env DEBIAN_FRONTEND=noninteractive timeout 900 apt-get -qq -y --no-install-recommends \
    -o DPkg::Lock::Timeout=300 install "${wanted[@]}" >"$cache/apt.log" 2>&1 ||
    { tail -20 "$cache/apt.log" >&2; fail "apt-get could not install the packages"; }
}

kernel_version() { # what the meta-package depends on now, e.g. 6.1.0-56-amd64 or 6.12.117+deb12-amd64
  apt-cache depends "$meta_package" 2>/dev/null |
    sed -n "s/.*Depends: linux-image-\\(${line//./\\.}\\.[^ ]*\\).*/\\1/p" | head -1
}

# An archive keeps a kernel for some weeks, a cache for longer.
require_in_archive() { # packages
  local name
  for name in "$@"; do
    apt-cache show "$name" >/dev/null 2>&1 || refresh_lists
    apt-cache show "$name" >/dev/null 2>&1 ||
      fail "$name is gone from Debian's archive: $rebuild takes the kernel that is there now"
  done
}

download() { # packages, into $cache/download
  require_in_archive "$@"
  rm -rf "$cache/download"
  mkdir -p "$cache/download"
  step "fetching $*"
  (cd "$cache/download" && timeout 900 apt-get -qq -o APT::Sandbox::User=root download "$@" >&2) ||
    fail "apt-get could not download $*; if it is gone from Debian's archive, $rebuild takes another kernel"
}

unpack() { # package directory
  local package=$1 target=$2
  [ -e "$target/.done" ] && return 0
  rm -rf "$target"
  mkdir -p "$target"
  download "$package"
  dpkg-deb -x "$cache/download/"*.deb "$target"
  rm -rf "$cache/download"
  touch "$target/.done"
}

headers_of() { # kernel
  case $headers in
    installed) echo "/usr/src/linux-headers-$1" ;;
    unpacked) echo "$cache/headers/usr/src/linux-headers-$1" ;;
  esac
}

# The common half is found by a path in the Makefile. Without vmlinux the build asks for no pahole.
unpack_headers() { # kernel
  local common=${1%-amd64} package
  [ ! -e "$cache/headers/.done" ] || return 0
  rm -rf "$cache/headers"
  mkdir -p "$cache/headers"
  download "linux-headers-$1" "linux-headers-$common-common" "linux-kbuild-$common"
  for package in "$cache/download/"*.deb; do dpkg-deb -x "$package" "$cache/headers"; done
  sed -i "s|/usr/src/|$cache/headers/usr/src/|" "$(headers_of "$1")/Makefile"
  rm -f "$(headers_of "$1")/vmlinux"
  rm -rf "$cache/download"
  touch "$cache/headers/.done"
}

# The driver's policy is a set of constants; in the second build they become parameters of the module.
make_tunable() { # folder
  local name
  for name in try_gso mpa_crc_required mpa_crc_strict siw_tcp_nagle peer_to_peer; do
    sed -i "s/^const bool $name\b.*/bool $name; module_param($name, bool, 0444);/" "$1/siw_main.c"
    sed -i "s/^extern const bool $name;/extern bool $name;/" "$1/siw.h"
    grep -q "module_param($name" "$1/siw_main.c" || fail "the driver's source has no constant $name"
  done
  sed -i 's/^u_char mpa_version\b.*/&\nmodule_param(mpa_version, byte, 0444);/' "$1/siw_main.c"
}

build_driver() { # kernel, variant
  local folder=$cache/driver-$2 made_of
  made_of="$1 $(declare -f make_tunable build_driver | sha256sum)"
  [ "$(cat "$folder/.made-of" 2>/dev/null)" != "$made_of" ] || return 0
  rm -rf "$folder"
  mkdir -p "$folder"
  cp -r "$cache/source/siw/." "$folder/"
  [ "$2" = stock ] || make_tunable "$folder"
  step "compiling siw.ko ($2)"
  timeout 600 make -s -C "$(headers_of "$1")" M="$folder" CONFIG_RDMA_SIW=m modules \
    >"$folder.log" 2>&1 ||
    { tail -20 "$folder.log" >&2; fail "siw.ko did not compile"; }
  strip -g "$folder/siw.ko"
  echo "$made_of" >"$folder/.made-of"
}

unpack_driver_source() {
  [ -e "$cache/source/siw/siw_main.c" ] && return 0
  unpack "$source_package" "$cache/source-package"
  step "unpacking the driver's source"
  mkdir -p "$cache/source"
  tar -xJf "$cache/source-package/usr/src/$source_package.tar.xz" -C "$cache/source" \
    --strip-components=4 --wildcards '*/drivers/infiniband/sw/siw/*'
  rm -rf "$cache/source-package"
}

add_file() { # path on this machine; it keeps its path, its links become plain files
  mkdir -p "$root$(dirname "$1")"
  [ -e "$root$1" ] || cp -L "$1" "$root$1"
}

add_program() {
  local library
  add_file "$1"
  for library in $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*'); do add_file "$library"; done
}

make_root() { # kernel
  local tool path
  root=$cache/root
  rm -rf "$root"
  mkdir -p "$root"/{usr/bin,usr/sbin,usr/lib,usr/lib64,etc,proc,sys,dev,tmp,root,modules,var/run}
  for path in bin sbin lib lib64; do ln -s "usr/$path" "$root/$path"; done

  cp "$(command -v busybox)" "$root/usr/bin/busybox"
  for tool in $("$root/usr/bin/busybox" --list); do
    [ "$tool" = busybox ] || ln -s busybox "$root/usr/bin/$tool"
  done
  for tool in "${tools[@]}"; do
    path=$(PATH=$PATH:/usr/sbin:/sbin command -v "$tool") ||
      fail "no $tool on this machine after installing its package"
    rm -f "$root/usr/bin/$tool" # the real tool instead of busybox's applet
    add_program "$(readlink -f "$path")"
    [ -e "$root$path" ] || { mkdir -p "$root$(dirname "$path")"; cp -L "$path" "$root$path"; }
  done
  # Debian's busybox shell runs its own applets before any program of that name (ip, for one), so the shell is
  # dash.
  ln -sf dash "$root/usr/bin/sh"
  add_program "$(find /usr/lib -name 'libsiw-rdmav*.so' | head -1)"
  # Loaded by name at run time, so ldd does not show them: rping aborts when its threads end without libgcc_s.
  add_program "$(find /usr/lib -name librspreload.so | head -1)"
  add_file "$(find /usr/lib/x86_64-linux-gnu -name libgcc_s.so.1 | head -1)"
  add_file /usr/libexec/coreutils/libstdbuf.so
  add_file /etc/libibverbs.d/siw.driver
  ln -sf "$(find /usr/lib -name librspreload.so | head -1)" "$root/usr/lib/librspreload.so"

  echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
  echo 'root:x:0:' >"$root/etc/group"
  printf '127.0.0.1 localhost siw-guest\n::1 localhost\n' >"$root/etc/hosts"
  install -m 755 "$here/guest-init.sh" "$root/init"
  install -m 755 "$here/agent.sh" "$root/usr/bin/lab-agent"
  add_modules "$1"
  for tool in "${archived[@]}"; do archive_tool "$tool"; done
}

archive_tool() { # a program and those of its libraries that the guest lacks
  local guest=$root path library
  path=$(readlink -f "$(command -v "$1")") || fail "no $1 on this machine after installing its package"
  root=$cache/archive-$1
  rm -rf "$root"
  add_file "$path"
  for library in $(ldd "$path" | grep -o '/[^ ]*'); do [ -e "$guest$library" ] || add_file "$library"; done
  tar -czf "$cache/$1.tar.gz" --owner=0 --group=0 -C "$root" .
  rm -rf "$root"
  root=$guest
}

add_modules() { # kernel
  local tree=$cache/image/lib/modules/$1 name path
  mkdir -p "$tree/extra"
  cp "$cache/driver-stock/siw.ko" "$tree/extra/siw.ko"
  depmod -b "$cache/image" "$1"
  for name in "${modules[@]}"; do
    modprobe -d "$cache/image" -S "$1" --show-depends "$name"
  done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' >"$cache/module-paths"
  while read -r path; do
    case $path in
      *.xz) xz -dc "$path" >"$root/modules/$(basename "$path" .xz)" ;;
      *) cp "$path" "$root/modules/" ;;
    esac
    echo "/modules/$(basename "$path" .xz)"
  done <"$cache/module-paths" >"$root/modules/order"
  rm "$root/modules/siw.ko"
  for name in stock tunable; do cp "$cache/driver-$name/siw.ko" "$root/modules/siw-$name.ko"; done
}

main() {
  [ "${1:-}" != --rebuild ] || rm -rf "$cache/stamp" "$cache/image" "$cache/source" "$cache/headers"
  mkdir -p "$cache"
  if [ "$(cat "$cache/stamp" 2>/dev/null)" = "$(fingerprint)" ] &&
    command -v qemu-system-x86_64 >/dev/null; then
    say "up to date"
    return 0
  fi
  exec 9>"$cache/lock"
  flock -w 1200 9 || fail "another build holds the lock"
  [ "$(uname -m)" = x86_64 ] || fail "only x86-64 is supported"
  command -v apt-get >/dev/null || fail "this needs a Debian system (apt-get); elsewhere use --peer HOST"

  [ -n "$(kernel_version)" ] || refresh_lists
  [ -z "$(missing_packages "${tool_packages[@]}")" ] || refresh_lists
  local kernel
  kernel=$(cat "$cache/image/.kernel" 2>/dev/null || kernel_version)
  [ -n "$kernel" ] ||
    fail "apt offers no $meta_package of Linux $line: this needs Debian 12 with its security updates among" \
      "apt's sources, or another kernel: set SIW_KERNEL to $lines"
  step "kernel $kernel"
  case $headers in
    installed)
      [ -z "$(missing_packages "linux-headers-$kernel")" ] || require_in_archive "linux-headers-$kernel"
      install_packages "${tool_packages[@]}" "linux-headers-$kernel"
      ;;
    unpacked)
      install_packages "${tool_packages[@]}" gcc-12
      unpack_headers "$kernel"
      ;;
  esac
  unpack "linux-image-$kernel" "$cache/image"
  echo "$kernel" >"$cache/image/.kernel"
  unpack_driver_source
  build_driver "$kernel" stock
  build_driver "$kernel" tunable
  step "making the initramfs"
  make_root "$kernel"
  (cd "$root" && find . | cpio -o -H newc --quiet -R 0:0 | gzip -1) >"$cache/initramfs.new"
  cp "$cache/image/boot/vmlinuz-$kernel" "$cache/vmlinuz.new"
  # Renamed, not written over: a guest may just be starting from them.
  mv "$cache/vmlinuz.new" "$cache/vmlinuz"
  mv "$cache/initramfs.new" "$cache/initramfs.gz"
  fingerprint >"$cache/stamp"
  step "done: $(du -h "$cache/initramfs.gz" | cut -f1) initramfs"
}

main "$@"
