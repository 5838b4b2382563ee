/* Two logs: that of an API, whose key names roles, and the shared log, which says what roles may do. Does an answer ever use a
   state of either that is older than a complete write of it? How one log is followed, through failovers too, is in
   coherence.pml; here a follower may be cut off, late, dropped and back at any time, each of the two on its own. There is one
   verifier: others would only make a write complete later.
   Bounds: -DLEASE=n (ticks) -DKEY_WRITES=n -DROLE_WRITES=n -DROLES=1|2 (of the key; changed in turn) -DEVICT (changes
   too long for the log). Stories instead: -DENEMY (the role is taken from the key, and then may do more), -DDELETION (a role is
   deleted, another made and given to the key), -DIDENTITY (an owner without and with an identity: made, deleted and made anew
   while a key becomes theirs; nothing but the owner's name joins the two).
   Every other #ifdef leaves a rule out. README.md says what each row means. */
#ifndef LEASE
#define LEASE 1
#endif
#ifndef ROLES
#if defined(DELETION) || defined(IDENTITY)
#define ROLES 2
#else
#define ROLES 1
#endif
#endif
#ifndef KEY_WRITES
#define KEY_WRITES 1
#endif
#ifndef ROLE_WRITES
#define ROLE_WRITES 1
#endif
#define WRITES (KEY_WRITES + ROLE_WRITES)

/* ---------------------------------------------------------------------- Redis: a log each, one server */
#define A 0              /* of the API: the key */
#define W 1              /* the shared log: roles */
#define FIRST 1          /* a log's position at the start */
#define KILLED 0
#define ABSENT 255       /* not in `members` */
byte head[2] = FIRST, complete[2] = FIRST;
byte fence_left[WRITES];
bool deleted;            /* a story's: the role that the key had is no more */
bool made_other;         /* another role was made since */

/* Position of the latest entry up to `q` that a role shows. */
#ifdef IDENTITY          /* all entries are about the owner who is to have the key */
#define shown(q, r)  ((r) == 0 -> FIRST : (q))
#define touches(q, r)  ((r) == 1)
#define exists(q)  (((q) - FIRST) & 1)        /* that owner's identity, at this position */
#else
#if ROLES == 1 || defined(DELETION)
#define shown(q, r)  (q)
#else
#define shown(q, r)  ((q) == FIRST || ((q) & 1) == (r) -> (q) : (q) - 1)
#endif
#define touches(q, r)  (shown(q, r) == (q))
#endif

/* ------------------------------------------------------------------------------------- verifiers */
#define NOTHING 0        /* states of a request */
#define SENT 1
#define OK 2
#define REFUSED 3
typedef Follower {
  bool live;
  byte pos;              /* applied up to here */
  byte lease;            /* ticks left */
  byte score = ABSENT;   /* at Redis */
  byte at[ROLES];        /* remembered: the position of the write that it shows, 0 = not remembered */
  byte request; byte age; byte sent; byte head;
  byte is[ROLES];        /* DELETION, IDENTITY: which record it is, NO_RECORD if there is none */
  byte read[ROLES];      /* the reply's */
};
Follower follower[2];
byte made;               /* what all roles let the key do: the position of the shared log that it was made of, 0 = not made */
#ifdef HELD_KEY
byte held;               /* a key that was found while memory lacked a role of it */
#endif
#define its follower[l]  /* of the log that it follows */
#define keys follower[A]
#define roles follower[W]

#define NO_RECORD 1      /* kinds of records, 0 = unknown */
#define GIVEN 2          /* the role that the key was given first; an identity */
#define OTHER 3          /* a role that was made later */
#ifdef IDENTITY
bool nobody;             /* the verifier knows that there is no identity at all */
#endif
#ifdef DELETION
#ifdef ID_REUSED
#define id_of_other 0
#else
#define id_of_other 1
#endif
#define named(a)  ((a) - FIRST)               /* id of the key's role: the second write gives it the other one */
inline read_record() {
  if
  :: l == W && keys.at[0] != 0 ->   /* only a key that names it has it read */
     r = named(keys.at[0]);
     its.read[r] = (r == 0 && !deleted -> GIVEN : (made_other && r == id_of_other -> OTHER : NO_RECORD));
     r = 0
  :: l == A -> its.read[0] = GIVEN
  :: else
  fi
}
#define remembers_role (roles.is[named(a)] != 0)
#else
#ifdef IDENTITY
#define named(a)  ((a) - FIRST)               /* the key's owner: the second write gives it the other one */
inline read_record() {
  if
  :: l == W && keys.at[0] != 0 ->
     r = named(keys.at[0]);
     its.read[r] = (r == 1 && exists(head[W]) -> GIVEN : NO_RECORD);
     r = 0
  :: l == A -> its.read[0] = GIVEN
  :: else
  fi
}
#define remembers_role (nobody || roles.is[named(a)] != 0)
#else
inline read_record() {
  its.read[0] = GIVEN;
#if ROLES == 2
  its.read[1] = GIVEN;
#endif
}
#endif
#ifndef IDENTITY
#if ROLES == 2
#define remembers_role (roles.at[0] != 0 && roles.at[1] != 0)
#else
#define remembers_role (roles.at[0] != 0)
#endif
#endif
#endif

inline forget(r) { its.at[r] = 0; its.is[r] = 0 }
inline end_request() {
  its.request = NOTHING; its.age = 0; its.sent = 0; its.head = 0; its.read[0] = 0;
#if ROLES == 2
  its.read[1] = 0
#endif
}
inline remake() {        /* what was made of all roles is of another prefix now */
#ifndef PROFILE_STALE
  if :: l == W -> made = 0 :: else fi
#else
  skip
#endif
}
inline drop() {
  its.live = false; its.pos = 0; its.lease = 0;
#ifdef OLD_STATE         /* what was known before the follower began anew counts */
  if :: l == A -> forget(0); forget(1) :: else fi;
#else
  forget(0);
#if ROLES == 2
  forget(1);
#endif
#endif
#ifdef IDENTITY
  if :: l == W -> nobody = false :: else fi;
#endif
  if :: l == W -> made = 0 :: else fi;
#ifdef HELD_KEY
  if :: l == A -> held = 0 :: else fi;
#endif
  end_request()
}
inline apply(q) {
  its.pos = q; r = 0;
#if defined(IDENTITY) && !defined(NOBODY_KEPT)
  if :: l == W -> nobody = false :: else fi;
#endif
  do
  :: r < ROLES ->
     if
     :: its.at[r] != 0 && (l == A || touches(q, r)) ->
#ifdef HELD_KEY
        if :: l == A && held == its.at[0] -> held = q :: else fi;
#endif
#ifdef EVICT
        forget(r)
#else
#ifdef DELETION
        if :: l == A -> its.at[0] = q :: else -> forget(r) fi
#else
#ifdef IDENTITY
        if
        :: l == A -> its.at[0] = q
#ifdef NONE_KEPT
        :: l == W && its.is[r] == NO_RECORD
#endif
#ifdef DELETION_KEPT
        :: l == W && !exists(q)
#endif
        :: else -> its.at[r] = q; its.is[r] = (exists(q) -> GIVEN : NO_RECORD)
        fi
#else
        its.at[r] = q; its.is[r] = GIVEN
#endif
#endif
#endif
     :: else
     fi;
     r++
  :: else -> r = 0; break
  od;
  remake()
}

inline handle_reply() {
  q = its.pos + 1;
  do :: q <= its.head -> apply(q); q++ :: else -> break od;
  do                                                           /* fills what was read as of its.head */
  :: r < ROLES ->
     if :: its.head == its.pos && its.read[r] != 0 -> its.at[r] = (l == A -> its.pos : shown(its.pos, r)); its.is[r] = its.read[r]
        :: else fi;
     r++
  :: else -> r = 0; break
  od;
  if :: LEASE > its.age && LEASE - its.age > its.lease -> its.lease = LEASE - its.age :: else fi;
  end_request(); q = 0
}

proctype Following(byte l) {
  byte q, r;             /* scratch, 0 between steps */
end:
  do
  :: d_step { its.request == NOTHING -> its.request = SENT; its.sent = its.pos }          /* REGISTER or SYNC */
  :: d_step { !its.live && its.request == SENT -> its.request = OK; its.score = head[l]; its.head = head[l] }
  :: d_step { !its.live && its.request == OK -> its.live = true; its.pos = its.head;
       if :: LEASE > its.age -> its.lease = LEASE - its.age :: else fi;
#ifdef IDENTITY
       if :: l == W -> nobody = !exists(its.pos) :: else fi;
#endif
       end_request() }
  :: d_step { its.live && its.request == SENT ->
       if
       :: its.score == KILLED -> its.request = REFUSED
       :: else -> its.request = OK; its.head = head[l];
          if :: its.sent > its.score -> its.score = its.sent :: else fi;
          read_record()
       fi }
  :: d_step { its.live && its.request == OK -> handle_reply() }
  :: d_step { its.live && its.request == REFUSED -> drop() }
  :: d_step { its.request != NOTHING -> end_request() }        /* request or reply is lost */
  :: d_step { its.live && its.pos < head[l] -> q = its.pos + 1; apply(q); q = 0 }         /* a message */
  :: d_step { its.live -> drop() }                             /* the process is another, or begins anew */
  :: d_step { its.at[0] != 0 -> forget(0) }                    /* LRU */
#if ROLES == 2
  :: d_step { its.at[1] != 0 -> forget(1) }
#endif
#ifdef WS_JOIN_LATE      /* what is read before one is a member counts */
  :: d_step { l == W && !its.live && its.at[0] == 0 -> its.at[0] = head[W] }
#endif
  od
}

#ifdef ONE_LEASE
#define leased (roles.live)
#else
#ifdef WS_JOIN_LATE
#define leased (!roles.live || roles.lease > 0)
#else
#define leased (roles.live && roles.lease > 0)
#endif
#endif
/* Only the key's own states let it do without roles. */
#ifdef ENEMY
#define has_role(a)  ((a) == FIRST)
#else
#define has_role(a)  (true)
#endif

/* I16, in one synchronous block. `a` is the position of the key's state. */
inline answer() {
  assert(a >= complete[A]);
  if
  :: has_role(a) ->
     if :: made == 0 -> made = roles.pos :: else fi;
#ifdef WS_JOIN_LATE
     if :: !roles.live -> made = roles.at[0] :: else fi;
#endif
     w = made;
     assert(w >= complete[W]);
#ifdef ENEMY
     assert(w == FIRST);                                       /* never has the key what its role may do since */
#endif
#ifdef IDENTITY
     assert(!nobody || !exists(w));
     assert(nobody || named(a) == 1 || roles.is[0] == NO_RECORD);
     assert(nobody || named(a) == 0 || roles.is[1] == (exists(w) -> GIVEN : NO_RECORD));
     assert(nobody || named(a) == 0 || roles.at[1] == w);    /* not the one that was before it */
#else
#ifdef DELETION
     assert(named(a) != 0 || roles.is[0] != OTHER);        /* nor what a role may do that it was not given */
     assert(named(a) != 0 || complete[W] == FIRST || roles.is[0] == NO_RECORD);
     assert(named(a) != 1 || !made_other || roles.is[1] == OTHER);
#else
     assert(w == roles.pos || !roles.live);            /* one prefix: what was made, and each role of it */
     assert(roles.at[0] == shown(w, 0) || !roles.live);
#if ROLES == 2
     assert(roles.at[1] == shown(w, 1));
#endif
#endif
#endif
     w = 0
  :: else
  fi;
  a = 0
}

proctype Asked() {
  byte a, w;
end:
  do
  :: d_step { keys.at[0] != 0 && keys.lease > 0 &&
       (!has_role(keys.at[0]) || leased) -> a = keys.at[0];
       if
       :: !has_role(a) || remembers_role -> answer()
       :: else -> a = 0
       fi }
#ifdef HELD_KEY
  :: d_step { held == 0 && keys.at[0] != 0 -> held = keys.at[0] }
  :: d_step { held != 0 && keys.lease > 0 && leased && remembers_role ->
       a = held; held = 0; answer() }
#endif
  od
}

/* ----------------------------------------------------------------------------------- control planes */
#define behind(log)  (follower[log].score < s)
inline write(log, nth) { head[log]++; s = head[log]; fence_left[nth] = LEASE }
inline close(log, nth) { /* kills who is behind */
  if :: behind(log) -> follower[log].score = KILLED :: else fi;
  fence_left[nth] = 0;
  if :: s > complete[log] -> complete[log] = s :: else fi;
  s = 0
}
#ifdef CREATION_NOT_FENCED
#define may_close(log, nth)  ((log == W && exists(s)) || !behind(log) || fence_left[nth] == 0)
#else
#ifdef ROLE_NOT_FENCED
#define may_close(log, nth)  (log == W || !behind(log) || fence_left[nth] == 0)
#else
#define may_close(log, nth)  (!behind(log) || fence_left[nth] == 0)
#endif
#endif

#if !defined(ENEMY) && !defined(DELETION) && !defined(IDENTITY)
proctype Write(byte log; byte nth) {
  byte s;
end_before:
  d_step { head[log] == FIRST + (log == W -> nth - KEY_WRITES : nth) -> write(log, nth) };
end_fence:
  d_step { may_close(log, nth) -> close(log, nth) }
}
#endif
#ifdef ENEMY
proctype Enemy() {
  byte s;
end_take: d_step { true -> write(A, 0) };
end_taken: d_step { may_close(A, 0) -> close(A, 0) };
end_grant: d_step { true -> write(W, 1) };
end_granted: d_step { may_close(W, 1) -> close(W, 1) }
}
#endif
#ifdef DELETION
proctype Delete() {
  byte s;
end_delete: d_step { true -> write(W, 1); deleted = true };
end_deleted: d_step { may_close(W, 1) -> close(W, 1) }
}
proctype Give() {
  byte s;
#ifndef GIVEN_FIRST
#ifdef ID_REUSED
end_make: d_step { deleted -> made_other = true };
#else
end_make: d_step { true -> made_other = true };
#endif
#endif
end_give: d_step { true -> write(A, 0) };
end_given: d_step { may_close(A, 0) -> close(A, 0) };
#ifdef GIVEN_FIRST
end_make: d_step { true -> made_other = true };
#endif
}
#endif
#ifdef IDENTITY
proctype Give() {        /* createKey, importKeys or updateKey */
  byte s;
end_give: d_step { true -> write(A, 0) };
end_given: d_step { may_close(A, 0) -> close(A, 0) }
}
proctype Customer() {    /* createIdentity, deleteIdentity, createIdentity */
  byte s;
end_make: d_step { true -> write(W, 1) };
end_made: d_step { may_close(W, 1) -> close(W, 1) };
end_delete: d_step { true -> write(W, 2) };
end_deleted: d_step { may_close(W, 2) -> close(W, 2) };
end_again: d_step { true -> write(W, 3) };
end_last: d_step { may_close(W, 3) -> close(W, 3) }
}
#endif

/* -------------------------------------------------------------------------------------------- time */
proctype World() {
  byte j;
end:
  do
  :: d_step { true ->
       do
       :: j < 2 ->
          if :: follower[j].lease > 0 -> follower[j].lease-- :: else fi;
          if :: follower[j].request != NOTHING && follower[j].age < LEASE -> follower[j].age++ :: else fi;
          j++
       :: else -> j = 0; break
       od;
       do
       :: j < WRITES -> if :: fence_left[j] > 0 -> fence_left[j]-- :: else fi; j++
       :: else -> j = 0; break
       od }
  od
}

init {
  atomic {
    byte j;
    run Following(A); run Following(W); run Asked();
#ifdef ENEMY
    run Enemy();
#endif
#ifdef DELETION
    run Delete(); run Give();
#endif
#ifdef IDENTITY
    run Give(); run Customer();
#endif
#if !defined(ENEMY) && !defined(DELETION) && !defined(IDENTITY)
    do :: j < KEY_WRITES -> run Write(A, j); j++ :: else -> break od;
    do :: j < WRITES -> run Write(W, j); j++ :: else -> j = 0; break od;
#endif
    run World()
  }
}
