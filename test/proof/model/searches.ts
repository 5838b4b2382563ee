/** One search by Spin. `guards` names the promise that the removed rule keeps (the base: all it asserts). */
export interface Search {
  name: string;
  /** Its file, without `.pml`. */
  model: 'coherence' | 'credits' | 'debt' | 'window' | 'shared-log';
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
  debt('refill', ['-DREFILL']),
  debt('refill, verifiers cut off', ['-DREFILL', '-DCUT']),
  debt('increment', ['-DINCREMENT']),
  debtMutant('CLAMP_AT_ONCE', C1, ['-DCUT']),
  debtMutant('GONE_GIVES_BACK', C1, ['-DCUT']),
  { ...debtMutant('GONE_GIVES_BACK', C1, ['-DREFILL', '-DCUT']), name: 'GONE_GIVES_BACK, refill' },
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
