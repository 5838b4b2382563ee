/* Places: do members hold more at once than the limit? Two verifiers, the first with a second name after it was removed.
   Bounds: -DTURNS=n exchanges of a name, -DC=n the limit. Every other #ifdef leaves a rule out. README.md says what each row means. */
#ifndef TURNS
#define TURNS 2
#endif
#ifndef C
#define C 1
#endif
#define NAMES 3
#define LIVE 0
#define KILLED 1               /* a fence waits for its lease */
#define GONE 2

/* At Redis: what each name was granted, its latest turn, and whether it is a member. */
typedef Holder { byte G; byte n; byte is }
Holder h[NAMES];
byte x;

#define SENT 1
#define DONE 2
#define VOID 3
typedef Req { byte st; byte turn; byte S; byte K; byte name; byte G }
/* S: places in use. H: work that holds one of them, whose pool is remembered. */
typedef Ver { byte name; byte turn; byte G; byte S; byte H; bool lease; bool knows; Req cur; Req late }
Ver ver[2];
#define me ver[i]
#define nameOf(v) ver[v].name

/* What the promise is about: the work of those who are members, or answer. */
#define held(v) ((h[nameOf(v)].is != GONE || ver[v].lease) -> ver[v].H : 0)

inline clear(r) { r.st = 0; r.turn = 0; r.S = 0; r.K = 0; r.name = 0; r.G = 0 }
inline give_up() {
  me.late.st = me.cur.st; me.late.turn = me.cur.turn; me.late.S = me.cur.S; me.late.K = me.cur.K; me.late.name = me.cur.name;
  me.late.G = me.cur.G; clear(me.cur)
}
inline say(keeps) {
  me.turn++; me.cur.st = SENT; me.cur.turn = me.turn; me.cur.K = keeps; me.cur.name = me.name; me.cur.S = me.S;
#ifndef NO_LOWER_OF_PLACES
  me.G = me.S + keeps
#endif
}
#ifdef KILLED_IS_FREE
#define counts(j) (h[j].is == LIVE)
#else
#define counts(j) (h[j].is != GONE)
#endif

/* exchange.lua, for places. */
inline exec(r) {
  if
  :: h[r.name].is != LIVE -> r.st = VOID
#ifndef NO_TURN_OF_PLACES
  :: h[r.name].n >= r.turn -> r.st = VOID
#endif
  :: else ->
     h[r.name].G = r.S + r.K; h[r.name].n = r.turn;
     do :: j < NAMES -> if :: counts(j) -> x = x + h[j].G :: else fi; j++ :: else -> j = 0; break od;
     if
     :: x < C -> h[r.name].G = h[r.name].G + C - x
     :: true
     fi;
     x = 0; r.G = h[r.name].G; r.st = DONE
  fi
}

proctype Verifier(byte i) {
  byte j;
end: do
  :: d_step { me.cur.st == 0 && me.turn < TURNS && me.lease -> say(me.G - me.S) }
  :: d_step { me.cur.st == 0 && me.turn < TURNS && me.lease && me.G > me.S -> say(0) }
  :: atomic { me.cur.st == SENT -> exec(me.cur) }
  :: atomic { me.late.st == SENT -> exec(me.late) }
  :: d_step { me.cur.st == DONE -> if :: me.cur.name == me.name -> me.G = me.cur.G; me.knows = true :: else fi; clear(me.cur) }
  :: d_step { me.cur.st >= DONE -> clear(me.cur) }                    /* the reply is lost */
  :: d_step { me.cur.st == SENT && me.late.st != SENT -> give_up() }
#ifdef LATE_REPLY_OF_PLACES
  :: d_step { me.late.st == DONE -> if :: me.late.name == me.name -> me.G = me.late.G :: else fi; clear(me.late) }
#endif
  :: d_step { me.late.st >= DONE -> clear(me.late) }
  /* Work begins, and ends. */
  :: d_step { me.lease && me.knows && me.G > me.S -> me.S++; me.H++; assert(held(0) + held(1) <= C) }
  :: d_step { me.H > 0 -> me.H--;
#ifdef RELEASED_TWICE
       if :: me.S > 1 -> me.S = me.S - 2 :: else -> me.S = 0 fi
#else
       if :: me.S > 0 -> me.S-- :: else fi
#endif
     }
  /* Nobody asks for the key any more. */
#ifdef FORGOTTEN_WHILE_HELD
  :: d_step { me.cur.st == 0 && me.knows && me.G == me.S -> me.S = 0; me.G = 0; me.knows = false }
#else
  :: d_step { me.cur.st == 0 && me.knows && me.G == 0 -> me.knows = false }
#endif
  /* The lease is over; the first verifier registers again, under another name. What it still runs is not counted. */
  :: d_step { me.lease -> me.lease = false }
  :: d_step { !me.lease && h[me.name].is == LIVE -> me.lease = true }
  :: d_step { me.name == 0 && !me.lease -> h[0].is = GONE; me.name = 2; me.turn = 0; me.G = 0; me.S = 0; me.H = 0; me.knows = false;
       h[2].is = LIVE; me.lease = true; if :: me.cur.st == SENT && me.late.st != SENT -> give_up() :: else fi; clear(me.cur) }
  od
}

#ifdef REMOVED_WITH_LEASE
#define over(v) (true)
#else
#define over(v) (!ver[v].lease)
#endif

/* A fence kills whoever does not answer, and removes it when its lease is over. */
proctype World() {
  byte j;
end: do
  :: d_step { j < 2 && h[nameOf(j)].is == LIVE -> h[nameOf(j)].is = KILLED; j = 1 - j }
  :: d_step { h[nameOf(j)].is == KILLED && over(j) -> h[nameOf(j)].is = GONE }
  :: d_step { j = 1 - j }
  od
}

init {
  atomic { ver[1].name = 1; h[2].is = GONE; ver[0].lease = true; ver[1].lease = true; run Verifier(0); run Verifier(1); run World() }
}
