/* Credits: is more accepted than was granted? Two verifiers with two names each, one pool after the other.
   Bounds: -DTURNS=n exchanges of a name, -DC=n credits at first, -DSETS=0|1 sets that make a fresh pool of V credits, -DFAILOVER,
   -DREFILL a refill up to one credit, whose time comes before any operation, -DHOLD a request of each verifier may hold what it
   took, and need nothing of it in the end.
   Every other #ifdef leaves a rule out. README.md says what each row means. */
#ifndef TURNS
#define TURNS 2
#endif
#ifndef C
#define C 2
#endif
#ifndef SETS
#define SETS 0
#endif
#ifndef V
#define V 1
#endif
#define AMOUNT 1
#define ENDED 100
#ifdef FAILOVER
#define SERVERS 2
#else
#define SERVERS 1
#endif
#define OLD 0
#define NEW (SERVERS - 1)
#define NAMES 4               /* a name is never used again after a crash or a drop */
#define UNSAID 255            /* what a holder says that has forgotten what it spent */

/* A pool in Redis: what nobody holds, which pool the key has, and what each name was granted, spent and last did. */
typedef Holder { byte G; byte S; byte n }
typedef Server { byte b; byte g; bool due; Holder h[NAMES] }
Server srv[SERVERS];
bool cut, promoted;
#define up(p) ((p) == OLD || promoted)     /* a deposed primary goes on; what it grants cannot be confirmed */

/* What the promises are about, by pool. */
byte granted[2], accepted[2], complete, sets;
bool passed;

#define NONE 0
#define SENT 1
#define DONE 2
#define VOID 3
typedef Req { byte st; byte turn; byte S; byte K; byte name; byte gen; byte G; byte at }
typedef Ver { byte name; byte gen; byte G; byte S; byte turn; bool knows; bool settled; bool lease; bool killed; Req cur; Req late;
#ifdef HOLD
  byte held; byte hName; byte hGen; byte hS; byte hTurn        /* what is held, of whose pool; and what was said last under a former name */
#endif
}
Ver ver[2];
#define me ver[i]

inline clear(r) { r.st = NONE; r.turn = 0; r.S = 0; r.K = 0; r.name = 0; r.gen = 0; r.G = 0; r.at = 0 }
inline forget() { me.G = 0; me.S = 0; me.knows = false; me.settled = false }
/* Nobody waits for it any more, and it may still be executed. */
inline give_up() {
  me.late.st = me.cur.st; me.late.turn = me.cur.turn; me.late.S = me.cur.S; me.late.K = me.cur.K;
  me.late.name = me.cur.name; me.late.gen = me.cur.gen; me.late.G = me.cur.G; me.late.at = me.cur.at
}
inline say(nth, keeps) {
  me.cur.st = SENT; me.cur.turn = nth; me.cur.K = keeps; me.cur.name = me.name; me.cur.gen = me.gen; me.settled = false;
  if :: me.knows -> me.cur.S = me.S :: else -> me.cur.S = UNSAID fi
}
#ifdef HOLD
#define unheld (me.held == 0)
#else
#define unheld (true)
#endif
inline next_name() { me.name++; me.turn = 0; me.killed = false; me.lease = (SETS == 0); forget() }

/* Brings a pool to the present: the refill that is due counts what live holders have, and ends the others. */
#ifdef REFILL
inline settle(p, own, keeps) {
  if
  :: srv[p].due -> srv[p].due = false; x = srv[p].b + keeps;
     do
     :: j < NAMES ->
        if
        :: j == own
        :: j != own && j == ver[j / 2].name -> x = x + srv[p].h[j].G - srv[p].h[j].S
        :: else -> srv[p].h[j].S = srv[p].h[j].G; srv[p].h[j].n = ENDED
        fi; j++
     :: else -> j = 0; break
     od;
     if :: x < AMOUNT -> srv[p].b = srv[p].b + AMOUNT - x :: else fi; x = 0
  :: else
  fi
}
#else
#define settle(p, own, keeps) skip
#endif

/* exchange.lua. With r.S the script's answer tells what Redis knows to be spent. */
inline exec(r, p) {
  if
#ifndef NO_POOL_OF_ITS_OWN
  :: r.gen != srv[p].g -> r.st = VOID
#endif
#ifndef NO_TURN
  :: srv[p].h[r.name].n >= r.turn -> r.st = VOID
#endif
  :: else ->
     if :: r.S == UNSAID -> r.S = srv[p].h[r.name].S :: else fi;
     srv[p].b = srv[p].b + srv[p].h[r.name].G - (r.S + r.K);
     srv[p].h[r.name].G = r.S + r.K; srv[p].h[r.name].S = r.S; srv[p].h[r.name].n = r.turn;
     settle(p, r.name, r.K);
     if
     :: srv[p].b > 0 && srv[p].b < UNSAID - 9 && r.name == ver[r.name / 2].name -> if :: x = 1 :: x = srv[p].b fi;
          srv[p].b = srv[p].b - x; srv[p].h[r.name].G = srv[p].h[r.name].G + x; x = 0
     :: true
     fi;
     r.G = srv[p].h[r.name].G; r.at = p; r.st = DONE
  fi
}
#if defined(FAILOVER) && !defined(TAKE_WITHOUT_WAIT)
#define confirmed(r) (r.at == NEW || (!promoted && srv[NEW].h[r.name].n >= r.turn && srv[NEW].g == r.gen))
#else
#define confirmed(r) (true)
#endif
#ifdef NO_LEASE
#define leased (true)
#else
#define leased (me.lease)
#endif
inline take(r) {
  if
  :: r.name == me.name && r.gen == me.gen ->
     if :: me.knows :: else -> me.S = r.S; me.knows = true fi;
     me.G = r.G; me.settled = (r.G == r.S && me.S == r.S)
  :: else
  fi;
  clear(r)
}

proctype Verifier(byte i) {
  byte x;
#ifdef REFILL
  byte j;
#endif
end: do
  /* An exchange that keeps what is here, and one that gives it back. */
  :: d_step { me.cur.st == NONE && me.turn < TURNS && me.lease -> me.turn++; say(me.turn, me.G - me.S) }
  :: d_step { me.cur.st == NONE && me.turn < TURNS && me.lease && me.G > me.S -> me.turn++; say(me.turn, 0);
#ifndef NO_LOWER
       me.G = me.S
#endif
     }
  :: atomic { me.cur.st == SENT -> exec(me.cur, OLD) }
  :: atomic { me.late.st == SENT -> exec(me.late, OLD) }
#ifdef FAILOVER
  :: atomic { me.cur.st == SENT && up(NEW) -> exec(me.cur, NEW) }
#endif
  :: d_step { me.cur.st == DONE && confirmed(me.cur) -> take(me.cur) }
  :: d_step { me.cur.st == VOID || me.cur.st == DONE -> clear(me.cur) }            /* the reply is lost */
  :: d_step { me.cur.st == SENT && me.late.st != SENT -> give_up(); clear(me.cur) }
#ifdef LATE_REPLY
  :: d_step { me.late.st == DONE -> take(me.late) }
#endif
  :: d_step { me.late.st >= DONE -> clear(me.late) }
  /* A request is accepted. */
  :: d_step { me.knows && me.G > me.S && leased -> me.S++; me.settled = false; accepted[me.gen]++;
       assert(accepted[me.gen] <= granted[me.gen]); assert(me.gen >= complete) }
#ifdef HOLD
  :: d_step { me.held == 0 && me.knows && me.G > me.S && leased -> me.S++; me.settled = false; accepted[me.gen]++;
       assert(accepted[me.gen] <= granted[me.gen]); assert(me.gen >= complete); me.held = 1; me.hName = me.name; me.hGen = me.gen }
  /* Nothing of it was needed: it comes back to its pool, under the name that took it. */
  :: d_step { me.held == 1 && me.name == me.hName && (me.gen == me.hGen || me.knows) ->
#ifdef HELD_COMES_BACK_TWICE
       if :: me.S > 1 -> me.S = me.S - 2 :: else -> me.S = 0 fi;
#else
       if
#ifdef HELD_OUTLIVES_SET
       :: me.S > 0 -> me.S--
#else
       :: me.S > 0 && me.gen == me.hGen -> me.S--
#endif
       :: else
       fi;
#endif
       me.settled = false; me.held = 2; accepted[me.hGen]-- }
  :: d_step { me.held == 1 && me.name != me.hName && me.cur.st == NONE -> me.held = 2; accepted[me.hGen]--;
       me.cur.st = SENT; me.cur.turn = me.hTurn + 1; me.cur.K = 0; me.cur.name = me.hName; me.cur.gen = me.hGen; me.cur.S = me.hS - 1 }
#endif
  /* Nobody asks for the key any more. */
#ifdef FORGET_UNSETTLED
  :: d_step { me.cur.st == NONE && me.knows -> forget() }
#else
  :: d_step { me.cur.st == NONE && me.knows && me.settled && unheld -> forget() }
#endif
  /* The set is applied: another pool, of which nothing is here. */
  :: d_step { me.gen < srv[promoted * NEW].g && !me.killed -> me.gen = srv[promoted * NEW].g;
#ifndef SLICE_SURVIVES_SET
       forget()
#endif
     }
  :: d_step { !me.lease && !me.killed && me.gen == srv[promoted * NEW].g -> me.lease = true }
#if SETS > 0
  :: d_step { me.lease -> me.lease = false }
#endif
  /* A crash; and a drop, which settles under the old name. */
  :: d_step { (me.name & 1) == 0 && unheld -> next_name();
       if :: me.cur.st == SENT && me.late.st != SENT -> give_up() :: else fi; clear(me.cur) }
  :: d_step { (me.name & 1) == 0 && me.cur.st == NONE && me.turn < TURNS && me.knows ->
#ifdef HOLD
       me.hS = me.S; me.hTurn = me.turn + 1;
#endif
       say(me.turn + 1, 0); next_name() }
  :: d_step { (me.name & 1) == 0 && me.cur.st == NONE && me.turn < TURNS && !me.knows && unheld -> say(me.turn + 1, 0); next_name() }
  od
}

proctype World() {
  byte j;
end: do
  :: d_step { sets < SETS && !promoted -> sets++; srv[OLD].g++; srv[OLD].b = V; granted[srv[OLD].g] = V;
#ifndef SET_WITHOUT_SETTLE
       srv[OLD].due = false;
#endif
       do :: j < NAMES -> srv[OLD].h[j].G = 0; srv[OLD].h[j].S = 0; srv[OLD].h[j].n = 0; j++ :: else -> j = 0; break od }
  :: d_step { complete < srv[OLD].g && !promoted && srv[NEW].g == srv[OLD].g &&            /* the fence */
       (ver[0].gen == srv[OLD].g || !ver[0].lease) && (ver[1].gen == srv[OLD].g || !ver[1].lease) ->
       ver[0].killed = (ver[0].gen < srv[OLD].g); ver[1].killed = (ver[1].gen < srv[OLD].g); complete = srv[OLD].g }
#ifdef REFILL
  /* Time passes a refill. */
  :: d_step { !passed -> passed = true; srv[OLD].due = true; granted[srv[OLD].g] = granted[srv[OLD].g] + AMOUNT }
#endif
#ifdef REFUND_AT_REAP
  :: d_step { !promoted && srv[OLD].h[0].G > srv[OLD].h[0].S && ver[0].name != 0 ->
       srv[OLD].b = srv[OLD].b + srv[OLD].h[0].G - srv[OLD].h[0].S; srv[OLD].h[0].G = srv[OLD].h[0].S; srv[OLD].h[0].n = 255 }
#endif
#ifdef FAILOVER
  :: d_step { !cut -> srv[NEW].b = srv[OLD].b; srv[NEW].g = srv[OLD].g;
       do :: j < NAMES -> srv[NEW].h[j].G = srv[OLD].h[j].G; srv[NEW].h[j].S = srv[OLD].h[j].S; srv[NEW].h[j].n = srv[OLD].h[j].n; j++
          :: else -> j = 0; break od }
  :: d_step { !cut -> cut = true }
  :: d_step { cut && !promoted -> promoted = true }
#endif
  od
}

init {
  atomic {
    granted[0] = C; srv[OLD].b = C; srv[NEW].b = C; ver[0].name = 0; ver[1].name = 2;
    ver[0].lease = true; ver[1].lease = true; run Verifier(0); run Verifier(1); run World()
  }
}
