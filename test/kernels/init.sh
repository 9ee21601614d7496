#!/bin/busybox sh
# The first program of a guest, whose file system is all in memory. It prepares the machine for the tests, runs the
# tiers that /job names, and stops the machine. The serial line $EVENTS takes one JSON object per line; the other one is the console.
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
. /job
/bin/busybox mkdir -p /proc /sys /dev /run /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox mkdir /dev/pts
/bin/busybox mount -t devpts devpts /dev/pts
# Files that the image already has stay, because they are the real programs.
/bin/busybox --install -s 2> /dev/null
ip link set lo up
stty -F "$EVENTS" raw 2>/dev/null
# Keep the serial line open as long as the guest runs. After the last close, the kernel waits only for a limited time until the output
# is sent, and on a busy machine two results were lost.
exec 3> "$EVENTS"

# Rows of the packet tests run in parallel. An emulated machine handles such bursts so slowly that queues of the usual length
# overflow, and lost packets would look as if a rule had dropped them.
echo 100000 > /proc/sys/net/core/netdev_max_backlog
echo 16777216 > /proc/sys/net/core/rmem_max
echo 16777216 > /proc/sys/net/core/wmem_max

# The older iptables' own tools load these modules; the tests do not use the tools.
modprobe -a ip_tables ip6_tables 2> /dev/null

report() { echo "$1" >&3; }
report "{\"event\":\"up\",\"release\":\"$(uname -r)\",\"seconds\":$(cut -d ' ' -f 1 /proc/uptime)}"

cd /repo || report '{"event":"broken","message":"there is no checkout in the image"}'
export PATH=/repo/node_modules/.bin:$PATH
export NFT_PROXIER_SLOW="$SLOW" NFT_PROXIER_WITHOUT="$WITHOUT"
export NFT_PROXIER_REPORT="$EVENTS" NO_COLOR=1 NODE_COMPILE_CACHE=/tmp/cache
export NFT_PROXIER_MAIN=/opt/nft-proxier/dist/main.js

# Runs a command, and reports its duration, or its failure.
timed() {
  what=$1 begin=$(cut -d ' ' -f 1 /proc/uptime)
  shift
  "$@" > /dev/null || report "{\"event\":\"broken\",\"message\":\"$what failed; the console says why\"}"
  seconds=$(awk -v begin="$begin" '{ printf "%.1f", $1 - begin }' /proc/uptime)
  report "{\"event\":\"start\",\"what\":\"$what\",\"seconds\":$seconds}"
}
uname -a
timed "kube-proxy --version, from files and not compiled before," kube-proxy --version
timed "kube-proxy --version, from files," kube-proxy --version
timed "the startup snapshot was made" node deploy/image/snapshot.mjs /opt/nft-proxier
timed "kube-proxy --version, from the snapshot," kube-proxy --version

# vitest ends a worker that has not started within a minute, and has no option for that.
sed -i 's/START_TIMEOUT = [0-9]*e4;/START_TIMEOUT = 9e5;/' node_modules/vitest/dist/chunks/index.*.js

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
