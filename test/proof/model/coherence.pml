/*
 * The coherence protocol as a model for Spin: can a verifier answer from a state that is older than
 * a write whose update was reported complete? Read README.md first; run with `npm run model`.
 *
 * Shape       -DKEYS=1|2  -DVERIFIERS=n  -DWRITES=n  -DLEASE=n (ticks)  -DDRIFT=n  -DFAILOVER
 *             -DLEASECHANGE  -DEVICT  -DREQUESTS=1|2  -DCREATES=n (keys are created, with
 *             FAILOVER, and none is changed: that its creations and its log are compared has the same proof)
 *             -DGATE (verifier 0 is of an older protocol, and the last write needs the next)
 * Mutants     every other #ifdef: each takes one rule away, and Spin must then find an error.
 *
 * Three ideas keep it small enough to search completely:
 *
 * Time is countdowns. There is no clock variable: a lease, a fence and a reaper each hold the ticks
 * they have left and tick() lowers all of them at once. So time has no end; only WRITES is bounded.
 *
 * A hash is one bit. There is one failover at most, so two histories that agree up to `fork`. The
 * entry at a position is fully named by (position, was it written after the fork on the new primary),
 * and, as with the chain hash, that name fixes everything before it.
 *
 * A replica is the past. Redis replicates one ordered stream, so a replica is what its primary was at
 * some earlier moment. replicate() copies all of it at any moment, or never.
 */
#ifndef KEYS
#define KEYS 1
#endif
#ifndef VERIFIERS
#define VERIFIERS 1
#endif
#ifndef WRITES
#define WRITES 2
#endif
#ifndef LEASE
#define LEASE 2
#endif
#ifndef REQUESTS
#define REQUESTS 1       /* in flight at once: 2 = a fill beside the periodic SYNC */
#endif
#ifndef DRIFT
#define DRIFT 0          /* a verifier's clock may run so many ticks slow over one lease */
#endif
#ifdef FAILOVER
#define SERVERS 2
#define X 1              /* a deposed primary goes on granting for so many ticks */
#else
#define SERVERS 1
#define X 0
#endif

/* ------------------------------------------------------------------ Redis: two servers, one slot */
#define OLD 0
#define NEW (SERVERS-1)  /* the replica, and after the failover the primary */

#define FIRST 1          /* the log's position at the start: every key's first state */
#define KILLED 0         /* score -1: counts as behind for every fence, and SYNC refuses it */
#define ABSENT 255       /* not in `members` */

typedef Server {
  byte head;
  byte score[VERIFIERS];
  bool beyond[VERIFIERS];  /* its latest lease was granted at a head beyond its score: the half in the score */
#ifdef CREATES
  byte created;          /* keys so far; the number of the last is its mark, as a position is a hash */
#endif
#ifdef LEASECHANGE
  byte L; byte Lf; byte token; bool fenced_first;
#endif
#ifdef GATE
  bool raised;           /* the API needs what verifier 0 does not speak */
#endif
};
Server server[SERVERS];

#define NEVER 255
byte fork = NEVER;       /* at promotion: the last position both histories share */
#ifdef CREATES
byte created_fork = NEVER;     /* at promotion: the last creation both histories share */
byte lost_left;          /* ticks in which who knows a key that the failover took may still tell of it */
#define created_new(p, q)  ((p) == NEW && (q) > created_fork)
#endif
bool cut;                /* the old primary has lost its replica */
byte grace = X+1;        /* and goes on granting until this is 0 */

#define promoted       (fork != NEVER)
#ifdef FAILOVER
#define up(p)          ((p) == OLD -> grace > 0 : promoted)
#define readable(p)    ((p) == OLD || promoted)   /* a deposed primary still answers plain reads */
#define on_new(p, q)   ((p) == NEW && (q) > fork)
#define replicated(q)  (promoted -> (q) <= fork : server[NEW].head >= (q))
#define any_up         (up(OLD) || up(NEW))
inline pick(p) { if :: up(OLD) -> p = OLD :: up(NEW) -> p = NEW fi }
#else
#define up(p)          (true)
#define readable(p)    (true)
#define on_new(p, q)   (false)
#define replicated(q)  (true)
#define any_up         (true)
inline pick(p) { p = OLD }
#endif

/* The key that an entry changes. The other key's entries are what a sweep's no-op is to this key. */
#if KEYS == 1
#define touches(q, n, k)  (true)
#else
#define touches(q, n, k)  ((q) == FIRST || (((q) + (n)) & 1) == (k))
#endif

/* ---------------------------------------------------------------------------------- the margins */
#ifdef NO_X
#define X_WAITED 0
#else
#define X_WAITED X
#endif
#ifdef NO_DRIFT_MARGIN
#define M 0
#else
#define M DRIFT
#endif
#ifdef LEASECHANGE
#define LOW 1
#define granted(p)  server[p].L
#define fence(p)    (server[p].Lf + X_WAITED + M)
#else
#define granted(p)  LEASE
#define fence(p)    (LEASE + X_WAITED + M)
#endif
#define LONGEST     (LEASE + DRIFT)

/* ------------------------------------------------------------------------------------ verifiers */
#define NOTHING 0        /* states of a request */
#define SENT 1
#define OK 2
#define REFUSED 3        /* NOREG, DIVERGED or TRIMMED: the verifier has to drop() */

/* Two requests at once are of one session: over one connection, to one server, in their order. */
#if defined(CREATES) && REQUESTS == 2
#define SESSION
#define in_order(r)  (my.request[1-r].state == NOTHING || my.first == r)
#define may_execute(r)  (in_order(r) || my.request[1-r].state != SENT)
#else
#define in_order(r)  (true)
#define may_execute(r)  (true)
#endif
typedef Request {
  byte state;            /* a REGISTER when the verifier is not live, otherwise a SYNC */
  byte age;              /* ticks since it was sent */
  byte sent;             /* the position it carries */
  byte want;             /* the key it reads as well + 1, 0 = none */
  byte from; byte head;  /* the reply: which server executed it, and the head there and then */
#ifdef CREATES
  byte mark; bool mark_new;    /* the last creation that the verifier had seen when it sent this */
  byte created; byte read;     /* the reply: the last there is, and the key that it read, 0 = none */
#endif
#ifdef LEASECHANGE
  byte L;
#endif
};
typedef Verifier_ {
  bool live;
  byte pos;              /* applied up to here */
  byte ring;             /* bit q: the entry applied at q is on the new primary's branch (its hash) */
  byte lease;            /* ticks left; answers only while > 0 */
  byte at[KEYS];         /* cached: the position of the write that the entry shows, 0 = not cached */
  byte at_new;           /* bit k: that write is on the new branch */
#ifdef CREATES
  byte mark; bool mark_new;    /* the last creation seen */
#ifdef SESSION
  byte first;            /* of two requests in flight: the one that was sent first */
#endif
  byte key; bool key_new;      /* cached: the number of one key that was created meanwhile, 0 = not cached */
#endif
  Request request[REQUESTS];
#ifdef TIMER_FENCE
  bool fenced;
#endif
};
Verifier_ verifier[VERIFIERS];
#define my verifier[id]
#define its my.request[r]
#define FILL (REQUESTS-1)
#define bit_(mask, q)  (((mask) >> (q)) & 1)

/* What the promises speak about: the highest complete write and the highest durable one. */
byte complete = FIRST; bool complete_new;
byte durable = FIRST;

byte updates;            /* started so far */
byte fence_left[WRITES];
#define IDLE 255
byte reap_left[SERVERS * VERIFIERS] = IDLE;
#ifdef REAP_BY_NAME      /* the kill that it waited for may have been lost in the failover */
#define reaper(p, i)  reap_left[i]
#else
#define reaper(p, i)  reap_left[(p) * VERIFIERS + (i)]
#endif

inline end_request(r) {
  its.state = NOTHING; its.age = 0; its.sent = 0; its.want = 0; its.from = 0; its.head = 0;
#ifdef CREATES
  its.mark = 0; its.mark_new = false; its.created = 0; its.read = 0;
#ifdef SESSION
  my.first = 1-r;
#endif
#endif
#ifdef LEASECHANGE
  its.L = 0;
#endif
}
inline drop() {
  my.live = false; my.pos = 0; my.ring = 0; my.lease = 0; my.at[0] = 0; my.at_new = 0;
#ifdef CREATES
  my.mark = 0; my.mark_new = false; my.key = 0; my.key_new = false;
#endif
#if KEYS == 2
  my.at[1] = 0;
#endif
#ifdef TIMER_FENCE
  my.fenced = false;
#endif
  end_request(0);
#if REQUESTS == 2
  end_request(1)
#endif
}
inline cache(q, n) { my.at[k] = q; my.at_new = (my.at_new & ~(1 << k)) | (n << k) }
inline apply(q, n) {     /* the entry of position q, branch n */
  my.pos = q; my.ring = my.ring | (n << q);
  k = 0;
  do
  :: k < KEYS ->
     if
#ifdef EVICT             /* a payload too large for the log */
     :: my.at[k] != 0 && touches(q, n, k) -> my.at[k] = 0; my.at_new = my.at_new & ~(1 << k)
#else
     :: my.at[k] != 0 && touches(q, n, k) -> cache(q, n)
#endif
     :: else
     fi;
     k++
  :: else -> k = 0; break
  od
}

#ifdef LEASECHANGE
#define MINE its.L
#else
#define MINE LEASE
#endif
inline renew(r) {
#ifdef LEASE_FROM_REPLY
  my.lease = MINE + DRIFT;
#else
  if :: MINE + DRIFT > its.age && MINE + DRIFT - its.age > my.lease -> my.lease = MINE + DRIFT - its.age
     :: else fi;
#endif
#ifdef TIMER_FENCE
  if :: my.lease > 0 -> my.fenced = false :: else fi;
#endif
}

#ifdef NO_LEASE
#define may_answer (true)
#else
#ifdef TIMER_FENCE
#define may_answer (!my.fenced)
#else
#define may_answer (my.lease > 0)
#endif
#endif

#if defined(GATE) && !defined(OLDER_MAY_JOIN)
#define too_old(p) (id == 0 && server[p].raised)
#else
#define too_old(p) (false)
#endif
#ifdef NO_REGISTRATION
#define may_sync(p) (true)
#else
#define may_sync(p) (server[p].score[id] != ABSENT && server[p].score[id] != KILLED && !too_old(p))
#endif
#ifdef CREATES
#ifdef CREATIONS_NOT_COMPARED
#define same_creations(p) (true)
#else
#ifdef CREATIONS_COUNTED
#define same_creations(p) (its.mark <= server[p].created)
#else
#define same_creations(p) (its.mark <= server[p].created && its.mark_new == created_new(p, its.mark))
#endif
#endif
#else
#define same_creations(p) (true)
#endif
#ifdef CREATES
/* Of two requests at once: only what the verifier had seen when it sent one was compared. */
#ifdef CREATIONS_BELIEVED
#define proven (true)
#else
#define proven ((my.mark == its.mark && my.mark_new == its.mark_new) || \
                (my.mark == its.created && my.mark_new == created_new(its.from, its.created)))
#endif
#endif
#ifdef NO_HASH_CHAIN
#define same_hash(p, q) (true)
#else
#define same_hash(p, q) (bit_(my.ring, q) == on_new(p, q))
#endif

/* A message is published once and may reach a verifier late, twice, out of order or never: so any
 * entry of either history may arrive at any time. */
#ifdef NO_GAP_CHECK
#define arrives(p, q)  ((q) > my.pos && (q) <= server[p].head)
#else
#ifdef NO_PREV_HASH
#define arrives(p, q)  ((q) == my.pos + 1 && (q) <= server[p].head)
#else
#define arrives(p, q)  ((q) == my.pos + 1 && (q) <= server[p].head && bit_(my.ring, my.pos) == on_new(p, my.pos))
#endif
#endif

/* I1: the answer for key k contains every complete write of k, on the history that has them.
 * I9: and it is what the verifier's own prefix says, no newer and no older. */
inline answer() {
  q = complete;
  do :: !touches(q, (complete_new && q > fork), k) -> q-- :: else -> break od;
  assert(my.at[k] >= q && (my.at[k] <= fork || complete <= fork || bit_(my.at_new, k) == complete_new));
#ifdef CHECK_I9
  q = my.pos;
  do :: !touches(q, (bit_(my.ring, my.pos) && q > fork), k) -> q-- :: else -> break od;
  assert(my.at[k] == q);
#endif
#ifdef GATE              /* I20: nor does one answer who would ignore what a key may have */
  assert(id != 0 || !server[(promoted -> NEW : OLD)].raised);
#endif
  q = 0
}

#ifdef FAILOVER
#ifdef REGISTER_WITHOUT_WAIT
#define registered (true)
#else
#define registered (my.request[0].from == NEW || server[NEW].score[id] != ABSENT)
#endif
#else
#define registered (true)
#endif

inline send(r, key) {
  its.state = SENT; its.sent = my.pos; its.want = key;
#ifdef CREATES
#ifdef SESSION
  my.first = (my.request[1-r].state != NOTHING -> 1-r : r);
#endif
  its.mark = my.mark; its.mark_new = my.mark_new
#endif
}

/* register.lua, sync.lua: one atomic step on a server that still takes writing scripts */
inline execute_register() {
  pick(p);
  if
  :: too_old(p) -> end_register()
  :: else -> do_register()
  fi;
  p = 0; q = 0
}
inline end_register() { my.request[0].state = NOTHING; my.request[0].age = 0 }
inline do_register() {
  my.request[0].state = OK; my.request[0].from = p; my.request[0].head = server[p].head;
#ifdef CREATES
  my.request[0].created = server[p].created;
#endif
#ifdef LEASECHANGE
  my.request[0].L = granted(p);
#endif
#ifndef NO_REGISTRATION
  q = 0;                                                       /* a fresh name: unknown elsewhere */
  do :: q < SERVERS -> server[q].score[id] = ABSENT; server[q].beyond[id] = false; reaper(q, id) = IDLE; q++ :: else -> break od;
  server[p].score[id] = server[p].head; server[p].beyond[id] = false
#else
  skip
#endif
}
inline execute_sync(r) {
#ifdef SESSION
  if :: !in_order(r) && my.request[1-r].from == NEW -> p = NEW :: else -> pick(p) fi;
#else
  pick(p);
#endif
  if
  :: !may_sync(p) || its.sent > server[p].head || !same_hash(p, its.sent) || !same_creations(p) ->
       its.state = REFUSED; its.want = 0
  :: else ->
       its.state = OK; its.from = p; its.head = server[p].head;
#ifdef CREATES
       its.created = server[p].created;
       if :: r == FILL && its.created > 0 -> its.read = its.created     /* any key may be asked for */
          :: r == FILL && its.created > 1 -> its.read = its.created - 1
          :: true
       fi;
#endif
#ifdef LEASECHANGE
       its.L = granted(p);
#endif
#ifndef NO_REGISTRATION
#ifdef ACK_WHEN_SENT
       server[p].score[id] = server[p].head
#else
       if :: its.sent > server[p].score[id] -> server[p].score[id] = its.sent :: else fi
#endif
#ifndef NOTHING_NOTED
       ; server[p].beyond[id] = server[p].score[id] < server[p].head
#endif
#endif
  fi;
  p = 0
}

inline handle_reply(r) {
  p = its.from;
  q = its.sent + 1;
  do                                                           /* what it has must match the ring */
  :: q <= its.head && q <= my.pos && same_hash(p, q) -> q++
  :: else -> break
  od;
  if
  :: q <= its.head && q <= my.pos -> drop()
  :: else ->
       do :: q <= its.head -> apply(q, on_new(p, q)); q++ :: else -> break od;
       if
#ifdef NO_FILL_GUARD
       :: its.want != 0 ->
#else
       :: its.want != 0 && its.head == my.pos ->
#endif
          k = its.want - 1;
          q = its.head;                                        /* the record, as of its.head */
          do :: !touches(q, on_new(p, q), k) -> q-- :: else -> break od;
          assert(q >= my.at[k]);                               /* I3 */
          cache(q, on_new(p, q)); k = 0
       :: else
       fi;
#ifdef CREATES
       if
       :: its.read > 0 && (proven || its.read <= its.mark) ->
            my.key = its.read; my.key_new = created_new(p, its.read)
       :: else
       fi;
       if
       :: proven -> my.mark = its.created; my.mark_new = created_new(p, its.created); renew(r)
       :: else
       fi;
#else
       renew(r);
#endif
       end_request(r)
  fi;
  p = 0; q = 0
}

proctype Verifier(byte id) {
  byte p, q, k;          /* scratch, 0 between steps */
end:
  do
  :: d_step { !my.live && my.request[0].state == NOTHING -> my.request[0].state = SENT }
  :: atomic { !my.live && my.request[0].state == SENT && any_up -> execute_register() }
  :: d_step { !my.live && my.request[0].state == OK && registered ->   /* its reply, after its WAIT */
       my.live = true; my.pos = my.request[0].head;
       my.ring = on_new(my.request[0].from, my.pos) << my.pos;
#ifdef CREATES
       my.mark = my.request[0].created; my.mark_new = created_new(my.request[0].from, my.mark);
#endif
       renew(0); end_request(0) }

  :: d_step { my.live && my.request[0].state == NOTHING -> send(0, 0) }                   /* SYNC */
#ifndef CREATES
  :: d_step { my.live && my.request[FILL].state == NOTHING && my.at[0] == 0 -> send(FILL, 1) }
#endif
#if KEYS == 2
  :: d_step { my.live && my.request[FILL].state == NOTHING && my.at[1] == 0 -> send(FILL, 2) }
#endif
  :: atomic { my.live && my.request[0].state == SENT && may_execute(0) && any_up -> execute_sync(0) }
  :: d_step { my.live && my.request[0].state == REFUSED -> drop() }
  :: d_step { my.live && my.request[0].state == OK && in_order(0) -> handle_reply(0) }
#ifdef SESSION
  :: d_step { my.request[0].state != NOTHING || my.request[1].state != NOTHING ->   /* the connection breaks */
       end_request(1); end_request(0) }
#else
  :: d_step { my.request[0].state != NOTHING -> end_request(0) }      /* request or reply is lost */
#endif
#if REQUESTS == 2
  :: atomic { my.live && my.request[1].state == SENT && may_execute(1) && any_up -> execute_sync(1) }
  :: d_step { my.live && my.request[1].state == REFUSED -> drop() }
  :: d_step { my.live && my.request[1].state == OK && in_order(1) -> handle_reply(1) }
#ifndef SESSION
  :: d_step { my.request[1].state != NOTHING -> end_request(1) }
#endif
#endif
#ifdef NO_NONCE                                                /* a late reply answers the next request */
  :: d_step { my.live && my.request[0].state == OK -> my.request[0].age = 0; my.request[0].sent = my.pos }
#endif

  :: d_step { my.live && arrives(OLD, my.pos + 1) ->           /* a message */
       q = my.pos + 1; apply(q, on_new(OLD, q)); q = 0 }
#ifdef FAILOVER
  :: d_step { my.live && arrives(NEW, my.pos + 1) ->
       q = my.pos + 1; apply(q, on_new(NEW, q)); q = 0 }
#endif
#ifdef NO_GAP_CHECK
  :: d_step { my.live && arrives(OLD, my.pos + 2) -> q = my.pos + 2; apply(q, on_new(OLD, q)); q = 0 }
#endif

  :: d_step { my.at[0] != 0 -> my.at[0] = 0; my.at_new = my.at_new & ~1 }        /* LRU */
#if KEYS == 2
  :: d_step { my.at[1] != 0 -> my.at[1] = 0; my.at_new = my.at_new & ~2 }
#endif

  :: d_step { my.live && my.at[0] != 0 && may_answer -> answer() }              /* verifyKey */
#if KEYS == 2
  :: d_step { my.live && my.at[1] != 0 && may_answer -> k = 1; answer(); k = 0 }
#endif

#ifdef CREATES
  :: d_step { my.live && my.request[FILL].state == NOTHING -> send(FILL, 0) }   /* a look-up of a created key */
  :: d_step { my.key != 0 -> my.key = 0; my.key_new = false }
  :: d_step { my.live && my.key != 0 && may_answer ->          /* I11 */
       assert(my.key <= created_fork || my.key_new || lost_left > 0) }
#endif

  :: atomic { my.live && any_up ->                             /* clean stop: ZREM */
       pick(p);
       server[p].score[id] = ABSENT; server[p].beyond[id] = false; reaper(p, id) = IDLE; p = 0;
#ifndef LEAVE_BEFORE_STOP
       drop()
#endif
     }
#ifdef TIMER_FENCE                                             /* the timer fires, when it gets to run */
  :: d_step { my.live && my.lease == 0 && !my.fenced -> my.fenced = true }
#endif
  od
}

/* ---------------------------------------------------------- control planes: one process an update
 * Fences of different writes overlap, and so do control planes; a crashed one is a process that is
 * never scheduled again. */
#define in_log(q)  (server[q].head >= s && on_new(q, s) == n)

#if VERIFIERS == 1
#define behind(q)  (server[q].score[0] < s)
#else
#define behind(q)  (server[q].score[0] < s || server[q].score[1] < s)
#endif

#ifdef REAP_AT_ONCE
#define start_reaper(q, i) reaper(q, i) = 0
#else
#define start_reaper(q, i) reaper(q, i) = fence(q)
#endif
inline done() {
  if :: s > complete -> complete = s; complete_new = n :: else fi;
  p = 0; s = 0; n = 0; i = 0
}
/* What was noted of a laggard's leases is believed by the server that wrote the change (n says which that was). */
#ifdef NOTE_BELIEVED     /* ... by any: a failover lost the note and kept the change */
#define may_hold(q, i)  (server[q].score[i] == KILLED || server[q].beyond[i])
#else
#define may_hold(q, i)  (server[q].score[i] == KILLED || server[q].beyond[i] || (q) != (n -> NEW : OLD))
#endif
inline kill(q) {         /* ZADD XX -1 or ZREM for exactly the laggards, in one script with the history check */
  i = 0;
  do
  :: i < VERIFIERS ->
     if
#ifdef KILL_WITHOUT_XX   /* ... for the names that the poller saw, members or not */
     :: named[i] -> assert(server[q].score[i] != ABSENT); server[q].score[i] = KILLED
#else
     :: server[q].score[i] < s ->
#ifdef LAGGARD_REMOVED
        server[q].score[i] = ABSENT
#else
        if
        :: may_hold(q, i) ->
             server[q].score[i] = KILLED; server[q].beyond[i] = false;
             if :: reaper(q, i) == IDLE -> start_reaper(q, i) :: else fi
        :: else -> server[q].score[i] = ABSENT     /* removed at once: its last lease is over */
        fi
#endif
#endif
     :: else
     fi;
     i++
  :: else -> i = 0; break
  od
}

/* A later write that all replicas confirmed proves the same of those before it in the same history, which fence-check.lua
   finds out by looking both up in one step. */
#ifdef COMPLETE_WITHOUT_WAIT
#define on_all_replicas (true)
#else
#ifdef COVERED_BY_ANOTHER_HISTORY    /* written on the new primary, looked up on the old one */
#define on_all_replicas (p == NEW || replicated(s) || (promoted && server[NEW].head > s && up(OLD)))
#else
#define on_all_replicas (p == NEW || replicated(s))
#endif
#endif

#ifdef NO_GATE
#define held_off (false)
#else
#define held_off (nth == WRITES-1 && server[p].score[0] != ABSENT)     /* an older follower is registered */
#endif
proctype Update(byte nth) {
  byte p, s, i; bool n;
#ifdef KILL_WITHOUT_XX
  bool named[VERIFIERS];
#endif
end_before:
  atomic { updates == nth && any_up ->                         /* the write script */
    pick(p);
#ifdef GATE
    if
    :: held_off -> p = 0; goto end_before
    :: else -> server[p].raised = server[p].raised || nth == WRITES-1
    fi;
#endif
    updates++;
    server[p].head++;
    s = server[p].head; n = on_new(p, s);
    fence_left[nth] = fence(p) }
end_wait:                                                      /* WAIT short: durable:false, until covered */
  atomic { on_all_replicas ->
    if :: s > durable -> durable = s :: else fi;
    assert(!promoted || n || s <= fork);                       /* I6 */
    p = 0 }
#ifdef KILL_WITHOUT_XX
end_poll:
  atomic { fence_left[nth] == 0 -> i = 0;                      /* the laggards, as the poller saw them */
    do :: i < VERIFIERS -> named[i] = (server[OLD].score[i] < s); i++ :: else -> i = 0; break od };
#endif
end_fence:
  if
  :: d_step { in_log(OLD) && !behind(OLD) -> done() }          /* complete by acks */
#ifdef FAILOVER
  :: d_step { readable(NEW) && in_log(NEW) && !behind(NEW) -> done() }
#endif
  :: d_step { fence_left[nth] == 0 && up(OLD) && in_log(OLD) -> kill(OLD); done() }
#ifdef FAILOVER
  :: d_step { fence_left[nth] == 0 && up(NEW) && in_log(NEW) -> kill(NEW); done() }
#endif
  fi
}

#ifdef CREATES           /* create-key.lua. Nobody waits for anything: nothing of the key is cached yet */
proctype Create() {
  byte p;
end_create:
  atomic { any_up -> pick(p); server[p].created++ }
}
#endif

/* --------------------------------------------------------- everything that happens by itself */
#ifdef LEASECHANGE
byte lease_wait;         /* from the lowered lease until fences follow it */
#endif
inline grow_older(i, r) {
  if
  :: verifier[i].request[r].state != NOTHING && verifier[i].request[r].age < LONGEST -> verifier[i].request[r].age++
  :: else
  fi
}
inline tick() {
  do
  :: j < VERIFIERS ->
     if :: verifier[j].lease > 0 -> verifier[j].lease-- :: else fi;
     grow_older(j, 0);
#if REQUESTS == 2
     grow_older(j, 1);
#endif
     j++
  :: else -> j = 0; break
  od;
  do
  :: j < WRITES -> if :: fence_left[j] > 0 -> fence_left[j]-- :: else fi; j++
  :: else -> j = 0; break
  od;
  do
  :: j < SERVERS * VERIFIERS ->
     if :: reap_left[j] > 0 && reap_left[j] != IDLE -> reap_left[j]-- :: else fi;
     j++
  :: else -> j = 0; break
  od;
#ifdef CREATES
  if :: lost_left > 0 -> lost_left-- :: else fi;
#endif
  if :: cut && grace > 0 -> grace-- :: else fi;
#ifdef LEASECHANGE
  if :: lease_wait > 0 -> lease_wait-- :: else fi;
#endif
}

/* Whoever has seen one and the same kill for F removes the name: the killer is the earliest who can. */
#define reapable(p, i) (up(p) && server[p].score[i] == KILLED && reaper(p, i) == 0)
inline reap(p, i) { server[p].score[i] = ABSENT; reaper(p, i) = IDLE }

inline copy_members() {
  do
  :: j < VERIFIERS -> server[NEW].score[j] = server[OLD].score[j]; server[NEW].beyond[j] = server[OLD].beyond[j]; j++
  :: else -> break
  od;
  j = 0
}

proctype World() {
  byte j;
end:
  do
  :: d_step { true -> tick() }
  :: d_step { reapable(OLD, 0) -> reap(OLD, 0) }
#if VERIFIERS == 2
  :: d_step { reapable(OLD, 1) -> reap(OLD, 1) }
#endif
#ifdef FAILOVER
  :: d_step { reapable(NEW, 0) -> reap(NEW, 0) }
  :: d_step { !cut ->                                          /* replicate */
       server[NEW].head = server[OLD].head;
#ifdef GATE
       server[NEW].raised = server[OLD].raised;
#endif
#ifdef CREATES
       server[NEW].created = server[OLD].created;
#endif
#ifdef LEASECHANGE
       server[NEW].L = server[OLD].L; server[NEW].Lf = server[OLD].Lf;
       server[NEW].token = server[OLD].token; server[NEW].fenced_first = server[OLD].fenced_first;
#endif
       copy_members() }
  :: atomic { !cut -> cut = true }                             /* partition */
  :: d_step { cut && !promoted ->                              /* promotion, at any time after it */
       fork = server[NEW].head;
#ifdef CREATES
       created_fork = server[NEW].created; lost_left = grace + LONGEST;
#endif
       assert(durable <= fork);                                /* I6 */
#ifndef REAP_BY_NAME
       do                                                      /* what was replicated is the same kill */
       :: j < VERIFIERS ->
          if
          :: server[NEW].score[j] == KILLED ->
             reaper(NEW, j) = (reaper(OLD, j) == IDLE -> 0 : reaper(OLD, j))
          :: else
          fi;
          j++
       :: else -> break
       od;
#endif
       j = 0 }
#endif
  od
}

#ifdef LEASECHANGE
/* set-lease.lua: one process lowers the lease while another raises it. Each step leaves the token of its change. */
#define LOWERING 1
#define RAISING 2
#ifdef FENCE_LAST_AFTER_FENCE_FIRST  /* of a raise that may still be granted, by a deposed primary too */
#define may_fence_last(q)  (up(q) && server[q].L == LOW && lease_wait == 0)
#else
#define may_fence_last(q)  (up(q) && server[q].L == LOW && lease_wait == 0 && server[q].token == LOWERING)
#endif
proctype Lower() {
  byte p;
end_grant:
  atomic { any_up -> pick(p);
#ifndef LF_LOWERED_AT_ONCE
    lease_wait = fence(p);
#endif
    server[p].L = LOW; server[p].token = LOWERING; p = 0 };
end_fence_last:
  if
  :: d_step { may_fence_last(OLD) -> server[OLD].Lf = LOW }
#ifdef FAILOVER
  :: d_step { may_fence_last(NEW) -> server[NEW].Lf = LOW }
#endif
  fi
}

#ifdef L_RAISED_FIRST
#define may_grant(q)  (up(q))
#else
#ifdef GRANT_WITHOUT_TOKEN           /* somebody may have lowered the lease in between */
#define may_grant(q)  (up(q) && server[q].Lf == LEASE)
#else
#define may_grant(q)  (up(q) && server[q].Lf == LEASE && server[q].token == RAISING)
#endif
#endif
inline grant(q) { server[q].L = LEASE; server[q].token = RAISING }
proctype Raise() {
  byte p;
#ifndef L_RAISED_FIRST
end_fence_first:
  atomic { any_up -> pick(p);
    server[p].Lf = LEASE; server[p].token = RAISING; server[p].fenced_first = true };
#ifndef L_RAISED_WITHOUT_WAIT
end_wait:
  d_step { p == NEW || server[NEW].fenced_first -> p = 0 };
#endif
#endif
end_grant:
  if
  :: d_step { may_grant(OLD) -> grant(OLD) }
#ifdef FAILOVER
  :: d_step { may_grant(NEW) -> grant(NEW) }
#endif
  fi
}
#endif

init {
  atomic {
    byte j;
    do
    :: j < SERVERS ->
       server[j].head = FIRST; server[j].score[0] = ABSENT;
#if VERIFIERS == 2
       server[j].score[1] = ABSENT;
#endif
#ifdef LEASECHANGE
       server[j].L = LEASE; server[j].Lf = LEASE;
#endif
       j++
    :: else -> j = 0; break
    od;
    do :: j < VERIFIERS -> run Verifier(j); j++ :: else -> j = 0; break od;
#ifdef CREATES
    do :: j < CREATES -> run Create(); j++ :: else -> j = 0; break od;
#else
    do :: j < WRITES -> run Update(j); j++ :: else -> j = 0; break od;
#endif
#ifdef LEASECHANGE
    run Lower(); run Raise();
#endif
    run World()
  }
}
