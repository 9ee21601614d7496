#!/bin/busybox sh
# The first program of a guest, with all that it ever has in memory: makes the machine what the tests expect, runs the
# tiers that /job names, and ends the machine. /dev/ttyS0 is the console, /dev/ttyS1 takes one JSON object per line.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
/bin/busybox mkdir -p /proc /sys /dev /run /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox mkdir /dev/pts
/bin/busybox mount -t devpts devpts /dev/pts
# What the image already has stays: those are the real ones.
/bin/busybox --install -s 2> /dev/null
ip link set lo up
stty -F /dev/ttyS1 raw 2>/dev/null
# Open for as long as the guest lives: when the last one closes a serial line, the kernel waits only so long for what was written
# to leave it, and on a busy machine two results were missing.
exec 3> /dev/ttyS1

# Rows of the packet tests run at once: an emulated machine works such bursts off so slowly that queues of the usual lengths
# overflow, and what is lost there would look like a rule's doing.
echo 100000 > /proc/sys/net/core/netdev_max_backlog
echo 16777216 > /proc/sys/net/core/rmem_max
echo 16777216 > /proc/sys/net/core/wmem_max

# The older iptables' own tools ask for these, where they are modules; the tests do without the tools.
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
  # The pipe makes vitest's output plain lines. Split into words on purpose: file names have no spaces here.
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
