#!/bin/sh
# First process of the siw guest: loads the modules, brings up two network cards, attaches siw to the first,
# and serves commands on the second. Runs under busybox inside the guest only; build-guest.sh puts it into the
# initramfs.
#
# eth0  10.0.2.15, fec0::15   the card siw runs on; 10.0.2.2 and fec0::2 are the host's loopback
# eth1  10.0.3.15             command channel only, so that captures of eth0 hold nothing but test traffic

export PATH=/usr/bin:/usr/sbin:/bin:/sbin HOME=/root TERM=dumb
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmp /tmp
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
mount -t debugfs debug /sys/kernel/debug 2>/dev/null

driver=stock
parameters=
for word in $(cat /proc/cmdline); do
  case $word in
    lab.driver=*) driver=${word#*=} ;;
    lab.parameters=*) parameters=$(echo "${word#*=}" | tr , ' ') ;;
  esac
done

while read -r module; do
  # The list holds the stock driver's place; the tunable build takes the same place when asked for.
  case $module in
    */siw.ko) insmod "/modules/siw-$driver.ko" $parameters ;;
    *) insmod "$module" ;;
  esac || echo "LAB PROBLEM insmod $module"
done < /modules/order

echo 1 > /proc/sys/net/ipv4/ip_forward
ip link set lo up
ip link set eth0 up
ip link set eth1 up
ip addr add 10.0.2.15/24 dev eth0
ip addr add 10.0.3.15/24 dev eth1
ip route add default via 10.0.2.2 dev eth0
echo 1 > /proc/sys/net/ipv6/conf/eth1/disable_ipv6
ip -6 addr add fec0::15/64 dev eth0

# Added before the carrier is there, the RDMA link would be shown as DOWN for ever.
tries=0
while [ "$(cat /sys/class/net/eth0/carrier 2>/dev/null)" != 1 ] && [ $tries -lt 300 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
rdma link add siw0 type siw netdev eth0 || echo "LAB PROBLEM rdma link"
mdev -s
ulimit -l unlimited
# A queue of completions per connection eats descriptors; tests with hundreds of connections need more than
# 1024.
ulimit -n 65536

echo "LAB LINK $(rdma link show siw0/1)"
nc -ll -p 2323 -e /usr/bin/lab-agent </dev/null >/dev/null 2>&1 &
echo "LAB READY $driver $parameters"

# The first process must never end, and it inherits orphans.
while :; do
  wait
  sleep 3600
done
