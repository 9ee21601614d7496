#!/bin/busybox sh
# The first program of a guest, whose file system is all in memory. It prepares the machine for the tests, runs the
# tiers that /job names, and stops the machine. /dev/ttyS0 is the console; /dev/ttyS1 takes one JSON object per line.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
/bin/busybox mkdir -p /proc /sys /dev /run /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox mkdir /dev/pts
/bin/busybox mount -t devpts devpts /dev/pts
# Files that the image already has stay, because they are the real programs.
/bin/busybox --install -s 2> /dev/null
ip link set lo up
stty -F /dev/ttyS1 raw 2>/dev/null
# Keep the serial line open as long as the guest runs. After the last close, the kernel waits only for a limited time until the output
# is sent, and on a busy machine two results were lost.
exec 3> /dev/ttyS1

# Rows of the packet tests run in parallel. An emulated machine handles such bursts so slowly that queues of the usual length
# overflow, and lost packets would look as if a rule had dropped them.
echo 100000 > /proc/sys/net/core/netdev_max_backlog
echo 16777216 > /proc/sys/net/core/rmem_max
echo 16777216 > /proc/sys/net/core/wmem_max

# The older iptables' own tools load these modules; the tests do not use the tools.
modprobe -a ip_tables ip6_tables 2> /dev/null

. /job
report() { echo "$1" >&3; }
report "{\"event\":\"up\",\"release\":\"$(uname -r)\",\"seconds\":$(cut -d ' ' -f 1 /proc/uptime)}"

cd /repo || report '{"event":"broken","message":"there is no checkout in the image"}'
export PATH=/repo/node_modules/.bin:$PATH
export NFT_PROXIER_SLOW="$SLOW" NFT_PROXIER_WITHOUT="$WITHOUT"
export NFT_PROXIER_REPORT=/dev/ttyS1 NO_COLOR=1 NODE_COMPILE_CACHE=/tmp/cache
export NFT_PROXIER_MAIN=/repo/dist/bundle/main.js
without=
for file in $EXCLUDED; do without="$without --exclude=$file"; done
for tier in $TIERS; do
  report "{\"event\":\"tier\",\"tier\":\"$tier\"}"
  # Because of the pipe, vitest prints plain lines. Words are split on purpose: file names have no spaces here.
  # shellcheck disable=SC2086
  { node test/lab/enter.mjs -- node node_modules/vitest/vitest.mjs run "--project=$tier" --passWithNoTests \
      --reporter=default --reporter=./test/kernels/reporter.ts $without $FILTERS 2>&1 3>&-; echo $? > /tmp/code; } | cat
  report "{\"event\":\"tier-end\",\"tier\":\"$tier\",\"code\":$(cat /tmp/code)}"
done
dmesg | grep -E 'WARNING:|BUG:|Oops|Call Trace|refcount_t|unregister_netdevice' | while read -r line; do
  echo "kernel log: $line"
done
report '{"event":"end"}'
exec 3>&-
sleep 1
poweroff -f
