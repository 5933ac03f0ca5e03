#!/bin/sh
# Runs one command for a channel (see channel.ts, which holds the other end). Works under busybox ash in the
# guest and under any POSIX shell on a remote machine.
#
# In:   line 1 a nonce, line 2 the command in base64
# Out:  "<nonce> pid <n>"   first; <n> leads a new session, so that the command and all it started can
#   be killed
#       the command's output, standard error mixed in, raw
#       "<nonce> status <n>"   last, after another newline
read -r nonce && read -r command || exit 0
command=$(printf %s "$command" | base64 -d)
# Tools that write into a pipe keep their output back; a reader of a running rping needs its lines at once.
if [ -e /usr/libexec/coreutils/libstdbuf.so ]; then
  export LD_PRELOAD=/usr/libexec/coreutils/libstdbuf.so _STDBUF_O=L
fi
# By path: busybox's setsid, asked for plain sh, would run its own shell, which prefers its applets to the
# real tools.
setsid /bin/sh -c 'echo "$0 pid $$"; exec /bin/sh -c "$1"' "$nonce" "$command" </dev/null 2>&1 &
wait $!
printf '\n%s status %s\n' "$nonce" $?
