/*
 * The same octets without a runtime: two processes, blocking sockets on 127.0.0.1.
 *
 *   cwin bw SIZE WINDOWS MS    one line a window: octets, nanoseconds, CPU microseconds of receiver and sender
 *   cwin lat SIZE MS           one line: the round trips of MS milliseconds, in nanoseconds
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READ_OCTETS = 65536, SETTLE_MS = 30, MAX_TRIPS = 200000 };

static long long now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int read_all(int s, char *buffer, size_t size) {
  for (size_t got = 0; got < size;) {
    ssize_t n = read(s, buffer + got, size - got);
    if (n <= 0) return -1;
    got += (size_t)n;
  }
  return 0;
}

static int write_all(int s, const char *buffer, size_t size) {
  for (size_t put = 0; put < size;) {
    ssize_t n = write(s, buffer + put, size - put);
    if (n <= 0) return -1;
    put += (size_t)n;
  }
  return 0;
}

/* The other process: pours octets, or echoes. */
static void peer(const struct sockaddr_in *to, size_t size, int echo) {
  int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  char *buffer = calloc(1, size);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (s < 0 || buffer == NULL || connect(s, (const struct sockaddr *)to, sizeof *to) != 0) _exit(1);
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  for (;;) {
    if (echo && read_all(s, buffer, size) != 0) _exit(0);
    if (write_all(s, buffer, size) != 0) _exit(0);
  }
}

static void bandwidth(int s, pid_t sender, int windows, int ms) {
  static char buffer[READ_OCTETS];
  clockid_t theirs;
  clock_getcpuclockid(sender, &theirs);
  long long begin = now(CLOCK_MONOTONIC), until = begin + SETTLE_MS * 1000000LL, cpu = 0, other = 0, octets = 0;
  for (int window = -1; window < windows;) {
    ssize_t n = read(s, buffer, sizeof buffer);
    if (n <= 0) return;
    octets += n;
    long long t = now(CLOCK_MONOTONIC);
    if (t < until) continue;
    long long c = now(CLOCK_PROCESS_CPUTIME_ID), o = now(theirs);
    if (window >= 0) {
      printf("%lld %lld %lld %lld\n", octets, t - begin, (c - cpu) / 1000, (o - other) / 1000);
      fflush(stdout);
    }
    window++, octets = 0, begin = t, cpu = c, other = o, until = t + ms * 1000000LL;
  }
}

static void latency(int s, size_t size, int ms) {
  char *buffer = calloc(1, size);
  long long until = now(CLOCK_MONOTONIC) + ms * 1000000LL;
  for (int trips = 0; trips < MAX_TRIPS && buffer != NULL; trips++) {
    long long begin = now(CLOCK_MONOTONIC);
    if (begin >= until || write_all(s, buffer, size) != 0 || read_all(s, buffer, size) != 0) break;
    printf("%lld ", now(CLOCK_MONOTONIC) - begin);
  }
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  int bw = strcmp(argv[1], "bw") == 0, one = 1;
  size_t size = (size_t)atol(argv[2]);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof at;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  signal(SIGPIPE, SIG_IGN);
  if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 1) != 0) return 1;
  getsockname(listener, (struct sockaddr *)&at, &length);
  pid_t child = fork();
  if (child == 0) peer(&at, size, !bw);
  int s = accept(listener, NULL, NULL);
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (bw) bandwidth(s, child, atoi(argv[3]), argc > 4 ? atoi(argv[4]) : 60);
  else latency(s, size, atoi(argv[3]));
  kill(child, SIGKILL);
  return 0;
}
