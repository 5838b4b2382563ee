/** One search by Spin. `guards` names the promise that the removed rule keeps (the base: all it asserts). */
export interface Search {
  name: string;
  /** Its file, without `.pml`. */
  model: 'coherence' | 'credits' | 'debt' | 'places' | 'window' | 'shared-log';
  defines: string[];
  expect: 'ok' | 'error';
  guards: string;
  quick: boolean;
  breadthFirst: boolean;
}

const FAILOVER = ['-DFAILOVER'];
const CREATED = ['-DCREATES=2', '-DWRITES=1', '-DLEASE=1'];
const TWO_KEYS = ['-DKEYS=2'];
const GATE = ['-DGATE'];
const I1 = 'I1: no answer older than a complete write';
const I11 = 'I11: no answer about a key that a failover took, a lease after it';
const I20 = 'I20: no answer by a verifier that is too old for the API';
const I6 = 'I6: no durable write is missing from a later primary';

const TWICE = ['-DC=1', '-DTURNS=2'];
const SET = ['-DC=1', '-DSETS=1'];
/** A refill of one credit, and a set to none. */
const REFILLED = ['-DC=1', '-DREFILL', '-DV=0', '-DTURNS=1'];
const C1 = 'C1: no more is accepted than was granted';
const R1 = 'R1: no more is accepted in a window than its limit';
const H2 = 'H2: members hold no more at once than the limit';
const I16 = 'I16: an answer uses one prefix of each log, none older than a complete write of it';
const TWO_ROLES = ['-DROLES=2'];
const IDENTITY = ['-DIDENTITY', '-DROLE_WRITES=3'];
const C2 = 'C2: nobody answers by the credits from before a complete change';

export const searches: Search[] = [
  base('base', [], { quick: true }),
  base('base, two keys, three writes', [...TWO_KEYS, '-DWRITES=3'], { quick: true }),
  base('base, large payloads evict', [...TWO_KEYS, '-DWRITES=3', '-DEVICT'], { quick: true }),
  base('base, drifting clocks', ['-DDRIFT=1', '-DWRITES=3'], { quick: true }),
  base('base, lease lowered and raised', ['-DLEASECHANGE'], { quick: true }),
  base('base, an older verifier', [...GATE, '-DWRITES=3'], { quick: true }),
  base('base, an older verifier, failover', [...GATE, ...FAILOVER], { quick: true }),
  base('base, an older verifier beside another', [...GATE, '-DVERIFIERS=2']),
  base('base, two verifiers', ['-DVERIFIERS=2']),
  base('base, failover', FAILOVER, { quick: true }),
  base('base, failover, keys created', [...FAILOVER, ...CREATED], { quick: true }),
  base('base, failover, keys created, two requests', [...FAILOVER, ...CREATED, '-DREQUESTS=2'], {
    quick: true,
  }),
  base('base, failover, two keys', [...FAILOVER, ...TWO_KEYS]),
  base('base, failover, three writes', [...FAILOVER, '-DWRITES=3']),

  mutant('NO_FILL_GUARD', I1),
  mutant('NO_LEASE', I1),
  mutant('TIMER_FENCE', I1),
  mutant('LEASE_FROM_REPLY', I1),
  mutant('NO_NONCE', I1),
  mutant('ACK_WHEN_SENT', I1),
  mutant('NO_REGISTRATION', I1),
  mutant('LEAVE_BEFORE_STOP', I1),
  mutant('LAGGARD_REMOVED', I1),
  mutant('REAP_AT_ONCE', I1),
  mutant('NOTHING_NOTED', I1),
  mutant('KILL_WITHOUT_XX', 'liveness: a fence brings no removed name back'),
  mutant('NO_DRIFT_MARGIN', I1, ['-DDRIFT=1']),
  mutant('LF_LOWERED_AT_ONCE', I1, ['-DLEASECHANGE']),
  mutant('L_RAISED_FIRST', I1, ['-DLEASECHANGE']),
  mutant('NO_GAP_CHECK', I1, TWO_KEYS),
  mutant('COMPLETE_WITHOUT_WAIT', I6, FAILOVER),
  mutant('REGISTER_WITHOUT_WAIT', I1, FAILOVER),
  mutant('NO_X', I1, FAILOVER),
  mutant('NOTE_BELIEVED', I1, FAILOVER),
  mutant('NO_HASH_CHAIN', I1, FAILOVER),
  mutant('CREATIONS_NOT_COMPARED', I11, [...FAILOVER, ...CREATED]),
  mutant('CREATIONS_COUNTED', I11, [...FAILOVER, ...CREATED]),
  mutant('CREATIONS_BELIEVED', I11, [...FAILOVER, ...CREATED, '-DREQUESTS=2']),
  mutant('NO_GATE', I20, GATE),
  mutant('OLDER_MAY_JOIN', I20, GATE),
  credits('credits, two of them', [], { quick: false }),
  credits('credits', ['-DC=1']),
  credits('credits, set', [...SET, '-DTURNS=1']),
  credits('credits, failover', [...FAILOVER, '-DTURNS=1']),
  credits('credits, refill', ['-DC=1', '-DREFILL'], { quick: false }),
  credits('credits, set while a refill is due', [...REFILLED, '-DSETS=1']),
  credits('credits, held', ['-DC=1', '-DTURNS=1', '-DHOLD']),
  credits('credits, held twice over', ['-DC=2', '-DTURNS=1', '-DHOLD']),
  credits('credits, held, two exchanges', ['-DC=1', '-DHOLD'], { quick: false }),
  credits('credits, held through a set', [...SET, '-DTURNS=1', '-DHOLD']),
  credits('credits, held through a refill', ['-DC=1', '-DREFILL', '-DTURNS=1', '-DHOLD']),
  creditsMutant('HELD_COMES_BACK_TWICE', C1, ['-DC=2', '-DHOLD']),
  creditsMutant('HELD_OUTLIVES_SET', C1, [...SET, '-DTURNS=2', '-DHOLD']),
  creditsMutant('NO_TURN', C1),
  creditsMutant('NO_LOWER', C1),
  creditsMutant('LATE_REPLY', C1),
  creditsMutant('REFUND_AT_REAP', C1),
  creditsMutant('FORGET_UNSETTLED', C1),
  creditsMutant('NO_POOL_OF_ITS_OWN', C1, SET),
  creditsMutant('SLICE_SURVIVES_SET', C1, SET),
  creditsMutant('SET_WITHOUT_SETTLE', C1, [...REFILLED, '-DSETS=1']),
  creditsMutant('TAKE_WITHOUT_WAIT', C1, [...FAILOVER, '-DTURNS=1']),
  { ...creditsMutant('NO_LEASE', C2, SET), name: 'NO_LEASE, credits' },

  debt('decrement', []),
  debt('decrement, verifiers cut off', ['-DCUT']),
  debt('decrement, work holds', ['-DHOLDS']),
  debt('refill', ['-DREFILL']),
  debt('refill, verifiers cut off', ['-DREFILL', '-DCUT']),
  debt('refill, work holds', ['-DREFILL', '-DHOLDS']),
  debt('increment', ['-DINCREMENT']),
  debtMutant('NO_DEBT', C1, []),
  { ...debtMutant('NO_DEBT', C1, ['-DHOLDS']), name: 'NO_DEBT, work holds' },
  debtMutant('OLDER_STAYS', C1, ['-DHOLDS']),
  debtMutant('GONE_GIVES_BACK', C1, ['-DREFILL', '-DCUT']),
  debtMutant('REFILL_IGNORES_WORK', C1, ['-DREFILL', '-DHOLDS']),
  debtMutant('REFILL_IGNORES_HELD', C1, ['-DREFILL']),
  debtMutant('TURN_SURVIVES_CHANGE', C2, ['-DINCREMENT']),
  debtMutant('REFUSAL_KEPT', C2, ['-DINCREMENT']),

  window('rate limit', ['-DC=1', '-DTURNS=2']),
  window('rate limit of two', ['-DC=2', '-DTURNS=2', '-DWINDOWS=1']),
  { ...windowMutant('NO_TURN', ['-DC=1', '-DTURNS=3', '-DWINDOWS=1'], false), name: 'NO_TURN, rate limit' },
  { ...windowMutant('NO_LOWER', TWICE), name: 'NO_LOWER, rate limit' },
  { ...windowMutant('LATE_REPLY', TWICE), name: 'LATE_REPLY, rate limit' },
  windowMutant('FORGOTTEN_IS_UNSPENT', TWICE),
  windowMutant('OLD_WINDOW_COUNTS', TWICE),
  windowMutant('SLICE_SURVIVES_WINDOW', TWICE),
  windowMutant('UNTIL_FROM_REPLY', TWICE),

  places('places', ['-DTURNS=1'], { quick: true }),
  places('places, two exchanges', []),
  places('places, two of them', ['-DC=2']),
  placesMutant('NO_TURN_OF_PLACES', [], false),
  placesMutant('NO_LOWER_OF_PLACES', [], false),
  placesMutant('LATE_REPLY_OF_PLACES', [], false),
  placesMutant('KILLED_IS_FREE'),
  placesMutant('REMOVED_WITH_LEASE'),
  placesMutant('RELEASED_TWICE', ['-DC=2']),
  placesMutant('FORGOTTEN_WHILE_HELD'),

  sharedLog('two logs', []),
  sharedLog('two logs, two roles', TWO_ROLES),
  sharedLog('two logs, two roles, large payloads evict', [...TWO_ROLES, '-DEVICT']),
  sharedLog('two logs, a role does more once it is taken', ['-DENEMY']),
  sharedLog('two logs, a role is deleted', ['-DDELETION']),
  sharedLog('two logs, joined by a name', IDENTITY),
  sharedLog('two logs, joined by a name, large payloads evict', [...IDENTITY, '-DEVICT']),
  sharedLog('two logs, two writes of each', ['-DKEY_WRITES=2', '-DROLE_WRITES=2'], { quick: false }),
  sharedLog('two logs, two roles, each changed', [...TWO_ROLES, '-DROLE_WRITES=2'], { quick: false }),
  sharedLogMutant('ONE_LEASE'),
  sharedLogMutant('ROLE_NOT_FENCED'),
  sharedLogMutant('PROFILE_STALE', TWO_ROLES),
  sharedLogMutant('WS_JOIN_LATE'),
  sharedLogMutant('HELD_KEY', ['-DENEMY']),
  sharedLogMutant('ID_REUSED', ['-DDELETION']),
  sharedLogMutant('GIVEN_FIRST', ['-DDELETION']),
  { ...sharedLogMutant('ONE_LEASE', IDENTITY), name: 'ONE_LEASE, joined by a name' },
  sharedLogMutant('NONE_KEPT', IDENTITY),
  sharedLogMutant('NOBODY_KEPT', IDENTITY),
  sharedLogMutant('CREATION_NOT_FENCED', IDENTITY),
  sharedLogMutant('DELETION_KEPT', IDENTITY),
  sharedLogMutant('OLD_STATE', IDENTITY),

  deepMutant('NO_PREV_HASH', I1, [...FAILOVER, ...TWO_KEYS, '-DWRITES=3']),
  deepMutant('REAP_BY_NAME', I1, [...FAILOVER, '-DWRITES=3']),
];

/** What goes wrong in the counterexample without a rule. */
export const COUNTEREXAMPLES: readonly (readonly [rules: string, what: string])[] = [
  [
    'NO_LEASE, TIMER_FENCE, LEASE_FROM_REPLY, NO_DRIFT_MARGIN',
    'A verifier was paused or cut off. It still answers after the fence has ended.',
  ],
  [
    'NO_FILL_GUARD',
    'A look-up reads a record, and the verifier applies a newer change meanwhile. The older record then replaces the newer one.',
  ],
  ['NO_NONCE', 'The reply to an earlier request extends a lease.'],
  [
    'ACK_WHEN_SENT, NO_REGISTRATION, LEAVE_BEFORE_STOP',
    'The control plane believes that a follower has applied a change or has stopped. It has not.',
  ],
  [
    'LAGGARD_REMOVED, REAP_AT_ONCE',
    'The control plane removes a member that still holds a lease. Later fences do not wait for it.',
  ],
  ['KILL_WITHOUT_XX', 'A fence makes a name a member again that had already been removed.'],
  [
    'NOTHING_NOTED, NOTE_BELIEVED',
    'A fence removes a follower that holds a lease. Redis did not record that it granted this lease, or a failover lost the record.',
  ],
  ['LF_LOWERED_AT_ONCE, L_RAISED_FIRST', 'A fence waits for less than the longest lease that is alive.'],
  [
    'NO_GAP_CHECK, NO_HASH_CHAIN, NO_PREV_HASH',
    'A message was lost, or a failover took the history of a message. The verifier applies the message as if nothing were missing.',
  ],
  [
    'COMPLETE_WITHOUT_WAIT, REGISTER_WITHOUT_WAIT, NO_X',
    'A failover loses a write or a registration on which a complete change relies, or the fence ignores X, the time for which a deposed primary still grants leases.',
  ],
  [
    'CREATIONS_NOT_COMPARED, CREATIONS_COUNTED',
    'A failover lost the creation of a key, so nobody can disable the key. A verifier accepts it for ever.',
  ],
  [
    'CREATIONS_BELIEVED',
    'The same, with two requests in flight: the second one saw creations of another history.',
  ],
  [
    'NO_GATE',
    'An API gets a feature that a registered older verifier does not know. That verifier goes on answering.',
  ],
  [
    'OLDER_MAY_JOIN',
    'An older verifier registers for an API with a feature that it does not know, and answers.',
  ],
  [
    'REAP_BY_NAME',
    'A failover loses a kill, and a fence kills the follower again. The timer of the first kill then removes the follower too early.',
  ],
  ['NO_TURN', 'Redis executes an exchange late and counts it again.'],
  ['LATE_REPLY', 'A verifier has given up an exchange. The reply still counts.'],
  ['NO_LOWER', 'A verifier spends credits while it gives them back.'],
  [
    'REFUND_AT_REAP, FORGET_UNSETTLED',
    'A verifier spends credits without reporting it. Redis grants the same credits again.',
  ],
  ['NO_POOL_OF_ITS_OWN, SLICE_SURVIVES_SET', 'Credits from before a set are added to those after it.'],
  ['SET_WITHOUT_SETTLE', 'A refill was due before a set, and is made after it.'],
  ['TAKE_WITHOUT_WAIT', 'A failover loses a grant. Redis grants the same credits again.'],
  [
    'NO_DEBT, OLDER_STAYS, GONE_GIVES_BACK, REFILL_IGNORES_WORK',
    'A decrement or a refill has ended. A verifier can still give back credits that it took before.',
  ],
  [
    'HELD_COMES_BACK_TWICE, HELD_OUTLIVES_SET',
    'What work did not need comes back twice, or into the credits after a set.',
  ],
  ['REFILL_IGNORES_HELD', 'A refill does not count the credits that verifiers hold.'],
  [
    'TURN_SURVIVES_CHANGE, REFUSAL_KEPT',
    'After an increment a verifier still refuses by the earlier credits.',
  ],
  [
    'FORGOTTEN_IS_UNSPENT, OLD_WINDOW_COUNTS',
    'A verifier forgot what it spent of a rate limit, or reports what it spent in the window before. Redis grants that amount again.',
  ],
  ['SLICE_SURVIVES_WINDOW, UNTIL_FROM_REPLY', 'A verifier uses a grant of one window in the next one.'],
  [
    'NO_TURN_OF_PLACES, NO_LOWER_OF_PLACES, LATE_REPLY_OF_PLACES',
    'A place is used by two verifiers: a late exchange counts, or a verifier uses what it gives back.',
  ],
  [
    'KILLED_IS_FREE, REMOVED_WITH_LEASE',
    'The places of a verifier that may still have a lease are granted to another.',
  ],
  ['RELEASED_TWICE, FORGOTTEN_WHILE_HELD', 'More comes back than was taken, or what is taken is forgotten.'],
  [
    'ONE_LEASE, ROLE_NOT_FENCED',
    "The key's log is in sync and the shared log is not. The key does what its role no longer allows.",
  ],
  [
    'PROFILE_STALE',
    'A verifier keeps the permissions that all roles of a key grant together. One of the roles has changed since.',
  ],
  ['WS_JOIN_LATE', 'A verifier reads a role before it is a member of the shared log. No fence waits for it.'],
  [
    'HELD_KEY',
    'A verifier reads a key, which then leaves its memory. It judges this old key with a role that has changed since.',
  ],
  [
    'ID_REUSED',
    'A role is deleted, and another role gets its id. A key of the deleted role does what the other role allows.',
  ],
  [
    'GIVEN_FIRST',
    'A key gets a role before the role is created. A verifier goes on remembering that the role does not exist.',
  ],
  [
    'NONE_KEPT, NOBODY_KEPT',
    'A verifier remembers that there is no identity with some external id, or no identity at all. It still does so after the entry that creates such an identity.',
  ],
  [
    'CREATION_NOT_FENCED',
    'createIdentity returns complete while a verifier still assumes that there is no such identity.',
  ],
  [
    'DELETION_KEPT, OLD_STATE',
    'An identity was deleted, or dates from before the follower started anew. A verifier takes it for the next identity with the same external id.',
  ],
];

/** The protocol with every rule: each assertion is on, and the search has to reach its end. */
function base(name: string, defines: string[], { quick = false } = {}): Search {
  return {
    name,
    defines: ['-DCHECK_I9', ...defines],
    expect: 'ok',
    model: 'coherence',
    guards: 'I1, I3, I6, I9, I11, I20',
    quick,
    breadthFirst: false,
  };
}

/** One rule less. Breadth first gives the shortest counterexample, the one worth reading. */
function mutant(rule: string, guards: string, defines: string[] = []): Search {
  return {
    name: rule,
    defines: [`-D${rule}`, ...defines],
    expect: 'error',
    model: 'coherence',
    guards,
    quick: true,
    breadthFirst: true,
  };
}

function credits(name: string, defines: string[], { quick = true } = {}): Search {
  return { ...base(name, defines, { quick }), model: 'credits', defines, guards: 'C1, C2' };
}
function creditsMutant(rule: string, guards: string, defines: string[] = []): Search {
  return { ...mutant(rule, guards, defines), model: 'credits' };
}
function window(name: string, defines: string[]): Search {
  return { ...credits(name, defines), model: 'window', guards: R1 };
}
function windowMutant(rule: string, defines: string[], breadthFirst = true): Search {
  return { ...mutant(rule, R1, defines), model: 'window', breadthFirst };
}
function places(name: string, defines: string[], { quick = false } = {}): Search {
  return { ...credits(name, defines, { quick }), model: 'places', guards: H2 };
}
function placesMutant(rule: string, defines: string[] = [], breadthFirst = true): Search {
  return { ...mutant(rule, H2, defines), model: 'places', breadthFirst };
}
function sharedLog(name: string, defines: string[], { quick = true } = {}): Search {
  return { ...credits(name, defines, { quick }), model: 'shared-log', guards: I16 };
}
function sharedLogMutant(rule: string, defines: string[] = []): Search {
  return { ...mutant(rule, I16, defines), model: 'shared-log' };
}
function debt(name: string, defines: string[]): Search {
  return { ...credits(name, defines), model: 'debt' };
}
function debtMutant(rule: string, guards: string, defines: string[]): Search {
  return { ...mutant(rule, guards, defines), model: 'debt' };
}

/** A counterexample too deep for the memory that breadth first takes. */
function deepMutant(rule: string, guards: string, defines: string[]): Search {
  return { ...mutant(rule, guards, defines), quick: false, breadthFirst: false };
}
