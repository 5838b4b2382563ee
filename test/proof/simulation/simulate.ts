import { pause } from '../../../shared/process/clock.ts';
import type { Write } from '../../../shared/protocol/log/change-log-port.ts';
import { SHARED_LOG } from '../../../shared/redis/redis-keys.ts';
import { type KnownKey, Violation } from './checker.ts';
import { Faults } from './faults.ts';
import { emptyWindowMs, TAKEN_AGAIN_MS, takeAgain, WOKEN_MS, wake } from './held-limits.ts';
import type { Identities } from './identities.ts';
import { CALM, isLossy, type Plan, planOf } from './plan.ts';
import type { Plans } from './plans.ts';
import type { Roles } from './roles.ts';
import { Trace } from './trace.ts';
import { type ControlPlaneProcess, type VerifierProcess, World } from './world.ts';

/** Outcome of one run. */
export interface Result {
  readonly seed: number;
  readonly violation: Violation | undefined;
  /** The same for every run of this seed. */
  readonly traceHash: string;
  readonly trace: readonly string[];
  readonly events: number;
  readonly simulatedMs: number;
  readonly counts: World['checker']['counts'];
}

/** Runs one seed to its end or first violation. Everything in it follows from the seed. */
export async function simulate(seed: number, keepTrace = false): Promise<Result> {
  await new Promise((resolve) => setImmediate(resolve)); // lets go of what the seeds before left behind
  const { stackTraceLimit } = Error;
  if (!keepTrace) Error.stackTraceLimit = 0; // a third of the time went into stacks that nobody reads
  try {
    return await run(seed, keepTrace);
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

async function run(seed: number, keepTrace: boolean): Promise<Result> {
  const plan = planOf(seed);
  const trace = new Trace(keepTrace);
  const world = new World(plan, trace);
  const faults = new Faults(world);
  load(world);
  faults.start();
  await world.timeline.run(plan.activeMs);
  world.network.manners = CALM;
  faults.stop();
  await end(world);
  return {
    seed,
    violation: world.violation,
    traceHash: trace.hash,
    trace: trace.lines,
    events: world.timeline.steps,
    simulatedMs: world.timeline.nowMs,
    counts: world.checker.counts,
  };
}

/** Questions at one time while a limit is high. */
const HIGH_LOAD = 10;

/** Verifications, updates, deletes and new keys while things break. */
function load(world: World): void {
  const { plan, random, timeline } = world;
  const repeat = (meanMs: number, act: () => void) => {
    timeline.after(random.exponential(meanMs), () => {
      if (timeline.nowMs >= plan.activeMs) return;
      act();
      repeat(meanMs, act);
    });
  };
  repeat(plan.verifyPeriodMs, () => {
    const { verifiers } = world;
    if (verifiers.length === 0) return;
    const { plans } = world;
    if (!plans) return void world.verify(random.pick(verifiers), random.pick(world.keys));
    // While the limit is high, another verifier has much more load: who has a slice of before keeps it.
    const busy = random.chance(0.95) ? verifiers[plans.isHigh ? 1 : 0] : undefined;
    for (let i = plans.isHigh ? HIGH_LOAD : 1; i > 0; i--)
      void world.verify(busy ?? random.pick(verifiers), random.pick(world.keys));
  });
  repeat(plan.writePeriodMs, () => change(world));
  if (plan.tokens)
    repeat(plan.activeMs / 8, () => {
      const [process, apiId] = [random.pick(world.controlPlanes), random.pick(plan.apiIds)];
      const isLeeway = random.chance(0.5);
      process.machine.deliver(() => {
        if (isLeeway) void world.changeLeeway(process, apiId);
        else void world.switchTokens(process, apiId);
      });
    });
}

function change(world: World): void {
  const { random, keys, controlPlanes, plan } = world;
  const process = random.pick(controlPlanes);
  const apiId = random.pick(plan.apiIds);
  const { keyId, apiId: home } = random.pick(keys.filter(exists));
  const waitMs = random.pick([0, 100, Number.POSITIVE_INFINITY]);
  const kind = random.next();
  const rerolls = plan.rerolls > 0 && random.chance(plan.rerolls);
  const batch = plan.batches > 0 && random.chance(plan.batches) ? batchOf(world, home) : undefined;
  const isAgain = plan.deletesAgain !== undefined && random.chance(plan.deletesAgain);
  const { roles, identities } = world;
  const isOfIdentities = identities !== undefined && random.chance(0.3);
  const isOfRoles = roles !== undefined && random.chance(0.4);
  const isOfRootKeys = world.rootKey !== undefined && random.chance(0.4);
  process.machine.deliver(() => {
    if (world.plans) changePlan(world, world.plans, process, waitMs);
    else if (isAgain) deleteAgain(world, process, random.pick(keys.filter(exists)), waitMs);
    else if (isOfRootKeys) void world.rootKey?.change(process);
    else if (isOfIdentities) void identities.change(process);
    else if (identities && kind < 0.3) createAndStop(world, identities, process, apiId);
    else if (isOfRoles) changeRole(world, roles, process, waitMs);
    else if (rerolls) void reroll(world, process, waitMs);
    else if (batch) void world.writeAll(process, batch, waitMs);
    else if (kind < 0.08) void world.createKey(process, apiId);
    else if (kind < 0.1)
      void world.write(process, { apiId: home, operation: 'delete', keyId, fields: {} }, waitMs);
    else if (kind < 0.103)
      void world.write(process, { apiId, operation: 'api-deleted', keyId: '', fields: {} }, waitMs);
    else {
      const update = (): Write => {
        const credits = world.creditsChange();
        // Who has credits is refused for the want of them often enough.
        const fields = world.fields(credits ? random.chance(0.9) : random.chance(0.5));
        const write = { apiId: home, operation: 'update', keyId, fields } as const;
        return world.upgraded(credits ? { ...write, credits } : write);
      };
      const write = update();
      void world.write(process, write, waitMs).then((by) => {
        if (by === undefined && write.credits?.operation !== undefined) sendAgain(world, write, waitMs);
        // Who was fenced off must not be forgotten before the leases that it got since are over.
        if (by === 'fence' && process.machine.alive) void world.write(process, update(), waitMs);
      });
    }
  });
}

/** A change of a limit, or the creation of the customer, without whom each key has the limit for itself. */
function changePlan(world: World, plans: Plans, process: ControlPlaneProcess, waitMs: number): void {
  const { random, keys } = world;
  const { customer } = plans;
  if (customer) return void world.write(process, customer, waitMs);
  const { keyId, apiId } = random.pick(keys);
  const ofKey = () => ({ apiId, keyId, operation: 'update', fields: world.fields(true) }) as const;
  const write = plans.change() ?? ofKey();
  void world.write(process, write, waitMs);
}

/** A deletion, and about then the same by another caller, who finds the key or does not. */
function deleteAgain(
  world: World,
  process: ControlPlaneProcess,
  { apiId, keyId }: KnownKey,
  waitMs: number,
): void {
  const { random, timeline, controlPlanes } = world;
  const operation = random.pick(['delete', 'delete-again'] as const);
  void world.write(process, { apiId, operation, keyId, fields: {} }, waitMs);
  const other = random.pick(controlPlanes);
  const again = { apiId, operation: 'delete-again', keyId, fields: {} } as const;
  timeline.after(random.between(0, 500), () =>
    other?.machine.deliver(() => void world.write(other, again, waitMs)),
  );
}

/** A key is made, and its owner stopped by somebody else at about the same time. */
function createAndStop(
  world: World,
  identities: Identities<ControlPlaneProcess>,
  process: ControlPlaneProcess,
  apiId: string,
): void {
  void world.createKey(process, apiId);
  const { random, timeline, controlPlanes } = world;
  const other = random.pick(controlPlanes);
  timeline.after(random.between(0, 3), () => other?.machine.deliver(() => identities.stopLatest(other)));
}

function changeRole(world: World, roles: Roles, process: ControlPlaneProcess, waitMs: number): void {
  const write = world.random.chance(0.15) ? undefined : roles.change();
  if (write) void world.write(process, write, waitMs);
  else void world.createRole(process, roles);
}

/** The same change of credits once more, as by a caller that heard of no end of it. */
function sendAgain(world: World, write: Write, waitMs: number): void {
  const other = world.random.pick(world.controlPlanes);
  other?.machine.deliver(() => void world.write(other, write, waitMs));
}

/** A call, and mostly, where no answer came, the same once more. */
async function reroll(world: World, process: ControlPlaneProcess, waitMs: number): Promise<void> {
  const { random, controlPlanes } = world;
  const keys = world.keys.filter(exists);
  const key = random.pick([random.pick(keys), keys.at(-1) ?? random.pick(keys)]);
  const graceMs = random.pick([0, 0, 500, 100_000]);
  const operationId = random.token();
  const isAnswered = await world.reroll(process, key, graceMs, operationId, waitMs);
  if (isAnswered && random.chance(0.8)) return;
  const other = random.pick(controlPlanes);
  if (other) other.machine.deliver(() => void world.reroll(other, key, graceMs, operationId, waitMs));
}

/** A change of every key of an API, in any order: mostly to be refused. */
function batchOf(world: World, apiId: string): readonly [Write, ...Write[]] | undefined {
  const { random, keys } = world;
  const enabled = random.chance(0.3);
  const writes = keys
    .filter((key) => exists(key) && key.apiId === apiId)
    .map(({ keyId }): [number, Write] => {
      return [random.next(), { apiId, operation: 'update', keyId, fields: world.fields(enabled) }];
    });
  const [first, ...others] = writes.sort(([a], [b]) => a - b).map(([, write]) => write);
  return first && [first, ...others];
}

const exists = ({ createdAtMs }: KnownKey): boolean => Number.isFinite(createdAtMs);

/** Nothing breaks any more: whoever was cut off recovers, what is written completes, all agree. */
async function end(world: World): Promise<void> {
  const { plan, random } = world;
  const fenceMs = 1.07 * Math.max(...plan.leasesMs) + 1.03 * plan.deposedMs + 10;
  await until(world, recoveryMs(plan), () => notRecovered(world));
  const writes: Write[] = [
    ...world.keys.filter(exists).map(({ apiId, keyId }) => {
      const fields = world.fields(random.chance(0.5) || plan.heldLimits === true);
      return { apiId, operation: 'update', keyId, fields } as const;
    }),
    ...[...plan.apiIds, ...(world.roles ? [SHARED_LOG] : [])].map(
      (apiId) => ({ apiId, operation: 'noop', keyId: '', fields: {} }) as const,
    ),
  ];
  await done(world, fenceMs + LOST_CONNECTIONS_MS, 'a change in calm did not complete', writes, completed);
  const batches = plan.batches > 0 ? plan.apiIds.flatMap((apiId) => [batchOf(world, apiId) ?? []]) : [];
  await done(
    world,
    fenceMs + LOST_CONNECTIONS_MS,
    'a batch in calm did not complete',
    batches,
    batchCompleted,
  );
  await done(world, recoveryMs(plan), 'a verifier refused to answer in calm', world.verifiers, allAnswered);
  await until(world, SWEEP_MS + 2 * fenceMs, () => otherMembers(world));
  if (plan.credits !== undefined || plan.sharedLimits)
    await until(world, GIVEN_BACK_MS, () => stillHeld(world), 'I14');
  const emptyAtMs = emptyWindowMs(world);
  if (emptyAtMs !== undefined && !world.timeline.halted) {
    world.isQuiet = true;
    await world.timeline.run(emptyAtMs - WOKEN_MS);
    await done(world, WOKEN_MS, 'a verifier refused to answer in calm', [world], wake);
    if (!world.timeline.halted) await world.timeline.run(emptyAtMs);
    await done(
      world,
      TAKEN_AGAIN_MS,
      'what was given back of a limit cannot be taken',
      [world],
      takeAgain,
      'I27',
    );
  }
  if (!world.timeline.halted) world.check(() => balanced(world));
  if (!world.timeline.halted) world.check(() => world.checker.agree(world.keys));
}

/** Lets time pass until there is no problem any more; after `limitMs` it is a violation. */
async function until(
  world: World,
  limitMs: number,
  problem: () => string | undefined,
  invariant = 'I2',
): Promise<void> {
  const { timeline } = world;
  const giveUpAtMs = timeline.nowMs + limitMs;
  for (let found = problem(); found !== undefined && !timeline.halted; found = problem()) {
    if (timeline.nowMs >= giveUpAtMs) return world.fail(invariant, found);
    await timeline.run(Math.min(giveUpAtMs, timeline.nowMs + 100));
  }
}

/** Lets time pass until something is done with all of `items`. */
async function done<T>(
  world: World,
  limitMs: number,
  otherwise: string,
  items: readonly T[],
  act: (world: World, item: T) => Promise<void>,
  invariant?: string,
): Promise<void> {
  let open = items.length;
  for (const item of items) void act(world, item).then(() => open--);
  await until(world, limitMs, () => (open > 0 ? otherwise : undefined), invariant);
}

/** A broken connection that nobody noticed costs a command's time-out; a control plane may have this many. */
const LOST_CONNECTIONS_MS = 9 * 2100;

/** A registration that arrived late, when nobody waited for it any more, is found by the sweep's no-op. */
const SWEEP_MS = 35_000;

/** A SYNC period, a SYNC and a registration that have to time out, a backoff after each, and a few round trips. */
const recoveryMs = ({ limits }: Plan): number =>
  1.03 * (1.1 * limits.syncPeriodMs + limits.syncDeadlineMs + 2 * (2000 + 2000)) + 400;

function notRecovered({ verifiers, group }: World): string | undefined {
  for (const { machine, verifier, protocol } of verifiers) {
    for (const { apiId, canAnswer, position } of verifier.followers) {
      const { sequence: head, deleted, needs } = group.primary.state.api(apiId);
      if (head === 0 || protocol < needs || (canAnswer && (deleted || position === head))) continue;
      return `${machine.name} is at ${position} of ${apiId}, not ${head}`;
    }
  }
  return undefined;
}

/** Writes until it is complete: a connection to a former primary, or a broken one, is noticed by using it. */
async function completed(world: World, write: Write): Promise<void> {
  const process = world.random.pick(world.controlPlanes);
  while (!(await world.write(process, write, Number.POSITIVE_INFINITY))) await pause(process.machine, 20);
}

async function batchCompleted(world: World, writes: readonly Write[]): Promise<void> {
  const [first, ...others] = writes;
  const process = world.random.pick(world.controlPlanes);
  while (first && !(await world.writeAll(process, [first, ...others], Number.POSITIVE_INFINITY))) {
    await pause(process.machine, 20);
  }
}

/** Asks a verifier for one key after the other; a refusal may be the discovery of a dead connection. */
async function allAnswered(world: World, process: VerifierProcess): Promise<void> {
  for (const key of world.keys) {
    if (process.protocol < world.group.primary.state.api(key.apiId).needs) continue;
    while (!(await world.verify(process, key))) await pause(process.machine, 50);
  }
}

/** The idle time of a pool, a look at which ones are idle, an exchange, and the longest rest of who settles for a former name. */
const GIVEN_BACK_MS = 15_000;

/** Redis has heard by then of what was released. */
const RELEASED_MS = 3000;

/** Nobody asks any more, and whoever lives gives back what it holds. */
function stillHeld({ group, verifiers, plan, places, releasedAtMs, timeline }: World): string | undefined {
  for (const apiId of plan.apiIds) {
    const { pools, members } = group.primary.state.api(apiId);
    for (const [id, { holders }] of pools) {
      for (const [name, { granted, spent }] of holders) {
        if (members.has(name) && granted !== spent) return `${name} holds ${granted - spent} of ${id}`;
      }
    }
  }
  if (places?.size) return `${places.size} questions hold what they took`;
  if (timeline.nowMs - releasedAtMs < RELEASED_MS) return 'something was released just now';
  const closing = verifiers.find(({ verifier }) => verifier.followers.some(({ isClosing }) => isClosing));
  return closing && `${closing.machine.name} has yet to say what it spent`;
}

/** Where nobody crashed, and no history was lost, each credit was accepted, or is there. */
function balanced({ group, plan, ledger, keys }: World): void {
  if (plan.credits === undefined || isLossy(plan)) return;
  const changed = new Set(ledger.reduced);
  for (const apiId of new Set(keys.map((key) => key.apiId))) {
    const { pools, members, held } = group.primary.state.api(apiId);
    for (const [id, { free, lost, holders }] of pools) {
      const { granted, accepted } = ledger.of(id);
      // Whoever is forgotten, a day of Redis' clock after its last exchange, could not report what it spent.
      let out = 0;
      let forgotten = lost;
      for (const [name, holder] of holders) {
        if (members.has(name) || held.has(name)) out += holder.granted - holder.spent;
        else forgotten += holder.granted - holder.spent;
      }
      const rest = granted - accepted - free - out;
      const most = ledger.refilled.has(id) ? Number.POSITIVE_INFINITY : forgotten;
      if (changed.has(id) || (rest >= 0 && rest <= most)) continue;
      throw new Violation(
        'I14',
        `${id}: ${granted} granted, ${accepted} accepted, ${free} there, ${out} held`,
      );
    }
  }
}

/** Crashed followers are found and removed; nobody else is. */
function otherMembers({ group, verifiers }: World): string | undefined {
  for (const { apiId, members, created, needs } of group.primary.state.apis) {
    const follows = ({ verifier, following }: VerifierProcess) =>
      apiId === SHARED_LOG
        ? following.has(apiId)
        : verifier.followers.some((follower) => follower.apiId === apiId);
    const live = verifiers
      .filter(({ protocol }) => protocol >= needs)
      .filter(follows)
      .map(({ following }) => following.get(apiId)?.member ?? '');
    if (!created || [...members.keys()].sort().join() === live.sort().join()) continue;
    return `members of ${apiId} are ${[...members.keys()].join()}, not ${live.join()}`;
  }
  return undefined;
}
