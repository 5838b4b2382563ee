/* Credits taken off, or brought back, while verifiers hold some: C at first, then a decrement of D, which is all of them, or
   (-DREFILL) a refill up to C, or (-DINCREMENT) one more. Two verifiers with two names each; -DCUT: they may lose touch; -DHOLDS:
   what work holds (a part of S) may come back, and goes to Redis if it is from before the change. What a decrement does not
   find is owed, and paid by what comes back. Every other #ifdef leaves a rule out. */
#ifndef TURNS
#define TURNS 2
#endif
#ifndef C
#define C 2
#endif
#ifndef D
#define D 2
#endif
#define NAMES 4
#define NEVER 100
typedef Holder { short G; short S; short H; byte n }
typedef Req { bool off; bool none; bool after; byte st; byte turn; byte S; byte H; byte K; byte name; byte G; byte gone }
typedef Ver { byte name; byte G; byte S; byte H; byte older; byte turn; bool lease; bool applied; bool acked; bool killed; bool refuses; bool after; Req cur }
short b, o, x, live;
Holder h[NAMES];
Ver ver[2];
byte accepted, before;        /* all that was accepted and did not come back, and how much of it when the change was complete */
bool entry, done;
#define me ver[i]
inline clear(r) { r.off = 0; r.none = 0; r.after = 0; r.st = 0; r.turn = 0; r.S = 0; r.H = 0; r.K = 0; r.name = 0; r.G = 0; r.gone = 0 }
inline say(nth, keeps) { me.cur.st = 1; me.cur.turn = nth; me.cur.S = me.S; me.cur.H = me.H + me.older; me.cur.K = keeps; me.cur.name = me.name; me.cur.gone = 0 }
#define LIVE(n) (n == ver[n / 2].name && !ver[n / 2].killed)
/* Nobody owes more than may come back. */
inline bound_debt() {
#ifdef NO_DEBT
  o = 0
#else
  live = 0;
  do :: j < NAMES -> live = live + h[j].G - h[j].S + h[j].H; j++ :: else -> j = 0; break od;
  if :: o > live -> o = live :: else fi; live = 0
#endif
}
inline exec(r) {
  if
  :: h[r.name].n >= r.turn -> r.st = 3
  :: else ->
     x = h[r.name].G - (r.S + r.K); b = b + x;
     if :: x > 0 && o > 0 -> if :: x > o -> x = o :: else fi; b = b - x; o = o - x :: else fi; x = 0;
     h[r.name].G = r.S + r.K; h[r.name].S = r.S; h[r.name].H = r.H; h[r.name].n = r.turn;
     bound_debt();
     if
     :: b > 0 && LIVE(r.name) -> if :: x = 1 :: x = b fi; b = b - x; h[r.name].G = h[r.name].G + x; x = 0
     :: true
     fi;
     r.G = h[r.name].G; r.st = 2; r.none = (b == 0 && r.G == r.S); r.after = entry
  fi
}

proctype Verifier(byte i) {
  byte j;
end: do
  :: d_step { me.cur.st == 0 && me.turn < TURNS && me.lease -> me.turn++; say(me.turn, me.G - me.S) }
  :: d_step { me.cur.st == 0 && me.turn < TURNS && (h[me.name].G > h[me.name].S || h[me.name].H > me.H + me.older) -> me.turn++; me.G = me.S; say(me.turn, 0) }
  :: atomic { me.cur.st == 1 -> exec(me.cur) }
  :: d_step { me.cur.st == 2 -> if :: me.cur.name == me.name && !me.cur.off -> me.G = me.cur.G - me.cur.gone; me.refuses = me.cur.none; me.after = me.cur.after :: else fi; clear(me.cur) }
  :: d_step { me.cur.st >= 2 -> clear(me.cur) }
  :: atomic { me.G > me.S && me.lease -> me.S++; accepted++;
#ifdef REFILL
       assert(accepted <= C + (done -> C : 0)); assert(!done || accepted <= before + C)
#endif
#ifdef INCREMENT
       assert(accepted <= C + entry)
#endif
#if !defined(REFILL) && !defined(INCREMENT)
       assert(accepted <= C); assert(!done)
#endif
#ifdef HOLDS
       if :: me.H++ :: true fi
#endif
     }
#ifdef HOLDS
  /* Work ends: it costs what it held, or nothing. */
  :: d_step { me.H > 0 -> me.H-- }
  :: d_step { me.H > 0 -> me.H--; me.S--; accepted-- }
  :: d_step { me.older > 0 -> me.older-- }
  :: d_step { me.older > 0 -> me.older--; me.S--; accepted--;
#ifndef OLDER_STAYS
       me.G--; if :: me.cur.st != 0 -> me.cur.gone++ :: else fi
#endif
     }
#endif
#ifndef REFILL
  /* The change is applied: all that is here goes back, and so does what is on its way. */
  :: d_step { entry && !me.applied && !me.killed -> me.applied = true; me.G = me.S; me.older = me.older + me.H; me.H = 0;
#ifndef TURN_SURVIVES_CHANGE
       me.cur.off = (me.cur.st != 0);
#endif
#ifndef REFUSAL_KEPT
       me.refuses = false
#endif
     }
#endif
#ifdef INCREMENT
  /* A request is refused from memory. */
  :: d_step { me.refuses && me.lease -> assert(!done || me.after) }
#endif
  :: d_step { me.applied && !me.killed && !me.acked -> me.acked = true }
#ifdef CUT
  :: d_step { me.lease && entry -> me.lease = false }
  :: d_step { !me.lease && me.applied && !me.killed -> me.lease = true }
  :: d_step { me.killed && me.cur.st == 0 && (me.name & 1) == 0 && me.turn < TURNS ->
       say(me.turn + 1, 0); me.name++; me.G = 0; me.S = 0; me.H = 0; me.older = 0; me.turn = 0; me.killed = false; me.refuses = false; me.applied = true; me.acked = true; me.lease = true }
#ifdef REFILL
  /* A crash, and a drop. */
  :: d_step { me.cur.st == 0 && (me.name & 1) == 0 -> me.name++; me.G = 0; me.S = 0; me.turn = 0 }
  :: d_step { me.cur.st == 0 && (me.name & 1) == 0 && me.turn < TURNS -> say(me.turn + 1, 0); me.name++; me.G = 0; me.S = 0; me.turn = 0 }
#endif
#endif
  od
}

#define FENCED(k) (ver[k].acked || !ver[k].lease || ver[k].applied)
#define CLEAN(k) (ver[k].killed || h[ver[k].name].G == h[ver[k].name].S)
#ifdef REFILL_IGNORES_WORK
#define MAY_RETURN(n) 0
#else
#define MAY_RETURN(n) h[n].H
#endif
/* Who is not live gives nothing back any more. */
inline end_others() {
  skip;
#ifndef GONE_GIVES_BACK
  do
  :: j < NAMES ->
     if :: !LIVE(j) -> h[j].n = NEVER; h[j].S = h[j].G; h[j].H = 0 :: else fi; j++
  :: else -> j = 0; break
  od
#endif
}

proctype World() {
  byte j;
#ifdef REFILL
  d_step {
    true -> end_others();
#ifndef REFILL_IGNORES_HELD
    do :: j < NAMES -> if :: LIVE(j) -> live = live + h[j].G - h[j].S + MAY_RETURN(j) :: else fi; j++ :: else -> j = 0; break od;
#endif
    if :: b + live < C -> b = C - live :: else fi;
    before = accepted; done = true
  }
#else
#ifdef INCREMENT
  d_step { b = b + 1; entry = true };
#else
  d_step { b < D -> o = D - b; b = 0; bound_debt(); entry = true };
#endif
#ifdef CUT
  d_step { FENCED(0) && FENCED(1) -> ver[0].killed = !ver[0].acked; ver[1].killed = !ver[1].acked };
#else
  d_step { ver[0].acked && ver[1].acked };
#endif
  d_step { o == 0 || (CLEAN(0) && CLEAN(1)) -> before = accepted; done = true }
#endif
}

init { atomic { b = C; ver[0].name = 0; ver[1].name = 2; ver[0].lease = true; ver[1].lease = true; run Verifier(0); run Verifier(1); run World() } }
