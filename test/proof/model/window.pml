/* A rate limit: is more accepted in a window than its limit? Two verifiers, the first with a second name after a crash, one window after the other.
   Bounds: -DTURNS=n exchanges of a name, -DC=n the limit, -DWINDOWS=n. Every other #ifdef leaves a rule out. README.md says what each row means. */
#ifndef TURNS
#define TURNS 3
#endif
#ifndef C
#define C 2
#endif
#ifndef WINDOWS
#define WINDOWS 2
#endif
#define NAMES 3
#define UNSAID 255            /* what a holder says that has forgotten what it spent */
#define NOWINDOW 9

/* At Redis: the window that its clock is in, the one that the hash is of, what is granted in it, and each name's field. */
typedef Holder { short G; short S; byte n }
byte now, number;
short c, x;
Holder h[NAMES];
byte accepted[WINDOWS];

#define SENT 1
#define DONE 2
#define VOID 3
typedef Req { byte st; byte turn; byte S; byte K; byte name; byte said; byte win; short G; short known }
typedef Ver { byte name; byte turn; short G; short S; byte win; bool knows; bool valid; Req cur; Req late }
Ver ver[2];
#define me ver[i]

inline clear(r) { r.st = 0; r.turn = 0; r.S = 0; r.K = 0; r.name = 0; r.said = 0; r.win = 0; r.G = 0; r.known = 0 }
inline give_up() {
  me.late.st = me.cur.st; me.late.turn = me.cur.turn; me.late.S = me.cur.S; me.late.K = me.cur.K; me.late.name = me.cur.name;
  me.late.said = me.cur.said; me.late.win = me.cur.win; me.late.G = me.cur.G; me.late.known = me.cur.known; clear(me.cur)
}
inline forget() { me.G = 0; me.S = 0; me.knows = false; me.valid = false; me.win = NOWINDOW }
inline say(keeps) {
  me.turn++; me.cur.st = SENT; me.cur.turn = me.turn; me.cur.K = keeps; me.cur.name = me.name; me.cur.said = me.win;
  if :: me.knows -> me.cur.S = me.S :: else -> me.cur.S = UNSAID; me.cur.K = 0 fi;
#ifndef NO_LOWER
  me.G = me.S + me.cur.K
#endif
}

/* exchange.lua, for a rate limit. */
inline exec(r) {
  if
  :: number != now -> number = now; c = 0; j = 0;
       do :: j < NAMES -> h[j].G = 0; h[j].S = 0; h[j].n = 0; j++ :: else -> j = 0; break od
  :: else
  fi;
  if
#ifndef NO_TURN
  :: h[r.name].n >= r.turn -> r.st = VOID
#endif
  :: else ->
     if
#ifdef FORGOTTEN_IS_UNSPENT
     :: r.S == UNSAID -> r.S = h[r.name].S; r.K = 0
#else
     :: r.S == UNSAID -> r.S = h[r.name].G; r.K = 0
#endif
#ifndef OLD_WINDOW_COUNTS
     :: r.S != UNSAID && r.said != now -> r.S = 0; r.K = 0
#endif
     :: else
     fi;
     c = c + r.S + r.K - h[r.name].G;
     h[r.name].G = r.S + r.K; h[r.name].S = r.S; h[r.name].n = r.turn;
     if
     :: c < C && r.name == ver[(r.name == 1 -> 1 : 0)].name -> if :: x = 1 :: x = C - c fi;
          c = c + x; h[r.name].G = h[r.name].G + x; x = 0
     :: true
     fi;
     r.G = h[r.name].G; r.known = h[r.name].S; r.win = now; r.st = DONE
  fi
}
inline take(r) {
  if
  :: r.name == me.name ->
     if
     :: !me.knows -> me.S = r.known; me.knows = true
     :: me.knows && r.win != me.win -> me.S = 0
     :: else
     fi;
     me.G = r.G; me.win = r.win;
     /* What is granted ends as long after the sending as the window then had left. */
#ifdef UNTIL_FROM_REPLY
     me.valid = true
#else
     me.valid = (r.win == now)
#endif
  :: else
  fi;
  clear(r)
}

proctype Verifier(byte i) {
  byte j;
end: do
  :: d_step { me.cur.st == 0 && me.turn < TURNS && me.valid -> say(me.G - me.S) }
  :: d_step { me.cur.st == 0 && me.turn < TURNS && (!me.valid || me.G > me.S) -> say(0) }
  :: atomic { me.cur.st == SENT -> exec(me.cur) }
  :: atomic { me.late.st == SENT -> exec(me.late) }
  :: d_step { me.cur.st == DONE -> take(me.cur) }
  :: d_step { me.cur.st >= DONE -> clear(me.cur) }                    /* the reply is lost */
  :: d_step { me.cur.st == SENT && me.late.st != SENT -> give_up() }
#ifdef LATE_REPLY
  :: d_step { me.late.st == DONE -> take(me.late) }
#endif
  :: d_step { me.late.st >= DONE -> clear(me.late) }
  /* A request is accepted. */
  :: d_step { me.knows && me.valid && me.G > me.S -> me.S++; accepted[now]++; assert(accepted[now] <= C) }
  /* What was granted is over; and nobody asks for the key any more. */
  :: d_step { me.valid -> me.valid = false }
  :: d_step { me.cur.st == 0 && me.knows && (!me.valid || me.G == me.S) -> forget() }
  /* A crash. */
  :: d_step { me.name == 0 -> me.name = 2; me.turn = 0; forget();
       if :: me.cur.st == SENT && me.late.st != SENT -> give_up() :: else fi; clear(me.cur) }
  od
}

#ifdef SLICE_SURVIVES_WINDOW
#define over (true)
#else
#define over (!ver[0].valid && !ver[1].valid)
#endif

proctype World() {
end: do
  /* The next window, by when everything that was granted in this one is over. */
  :: d_step { now + 1 < WINDOWS && over -> now++ }
  od
}

init {
  atomic { number = NOWINDOW; ver[0].win = NOWINDOW; ver[1].win = NOWINDOW; ver[1].name = 1; run Verifier(0); run Verifier(1); run World() }
}
