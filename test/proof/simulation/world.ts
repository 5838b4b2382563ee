import type { Write } from '../../../shared/protocol/log/change-log-port.ts';
import { DEFAULT_LIMIT } from '../../../shared/protocol/records/limit.ts';
import { PROTOCOL } from '../../../shared/protocol/records/protocol.ts';
import { Fence } from '../../../shared/protocol/writer/fence.ts';
import { fenceLending, Sweep } from '../../../shared/protocol/writer/sweep.ts';
import { ChangeWriter } from '../../../shared/protocol/writer/writer.ts';
import { formatPointer, idPointer, SHARED_LOG, secretPointer } from '../../../shared/redis/redis-keys.ts';
import { ApiError } from '../../../shared/rules/errors.ts';
import { hashSecret } from '../../../shared/rules/key-format.ts';
import type { Release } from '../../../verifier/core/ports.ts';
import { type Costs, CREDITS, type Question, questionAbout } from '../../../verifier/core/question.ts';
import { StampedVerdicts } from '../../../verifier/core/stamped.ts';
import type { Verdict, VerdictSource } from '../../../verifier/core/verdict.ts';
import { fieldValues } from '../../../verifier/core/verdict-body.ts';
import { Verifier } from '../../../verifier/core/verifier.ts';
import { type Metering, metered } from '../../../verifier/metering/metering.ts';
import { TokenIssuer, TokenStamp } from '../../../verifier/tokens/tokens.ts';
import { Checker, type Following, type KnownKey, Violation } from './checker.ts';
import { Machine, Timeline, TRUE_WALL_MS } from './clock.ts';
import { type KeyVersion, LATER_FIELD, LATER_PROTOCOL, limitsText, versionOf } from './history.ts';
import { Identities } from './identities.ts';
import { EVERYTHING, Ledger } from './ledger.ts';
import { Network } from './network.ts';
import { RedisGroup, RedisNode } from './nodes.ts';
import { Places } from './places.ts';
import { isLossy, type Plan } from './plan.ts';
import { callsOf, OWNER, Plans } from './plans.ts';
import {
  Lanes,
  type SessionEvents,
  SimulatedChangeLog,
  SimulatedDirectory,
  SimulatedSweepStore,
} from './ports.ts';
import { Random } from './random.ts';
import { Rates, type Use } from './rates.ts';
import { RedisState } from './redis.ts';
import { Refills } from './refills.ts';
import { Roles } from './roles.ts';
import { RootKey } from './root-keys.ts';
import type { Trace } from './trace.ts';

const CREDITS_SLICE_MS = 2000;

/** A verifier's process, from its start to its end. */
export interface VerifierProcess {
  readonly machine: Machine;
  readonly verifier: Verifier<Metering>;
  readonly following: Map<string, Following>;
  readonly firstAskedAtMs: Map<string, number>;
  readonly protocol: number;
  /** Its answers to gateways; undefined = no API has tokens. */
  readonly withTokens: VerdictSource | undefined;
  readonly issuer: TokenIssuer;
}

/** A control plane's process. */
export interface ControlPlaneProcess {
  readonly machine: Machine;
  readonly log: SimulatedChangeLog;
  readonly store: SimulatedSweepStore;
  readonly changeWriter: ChangeWriter;
  readonly sweep: Sweep;
  readonly leaseMs: number;
}

/** Work that holds something, and its part of a rate limit. */
interface Work {
  readonly key: KnownKey;
  readonly pool: string;
  readonly reserved: number;
  readonly heldAtMs: number;
  readonly use: Use | undefined;
}

/** One fleet with its Redis, in one process, under one clock that only the simulation reads. */
export class World {
  readonly plan: Plan;
  readonly random: Random;
  readonly timeline = new Timeline();
  readonly trace: Trace;
  readonly group: RedisGroup;
  readonly network: Network;
  readonly checker: Checker;
  readonly ledger = new Ledger();
  readonly rates: Rates | undefined;
  readonly refills: Refills | undefined;
  readonly places: Places | undefined;
  /** True = changes that complete are no reason to ask. */
  isQuiet = false;
  /** When work ended latest that held something. */
  releasedAtMs = 0;
  readonly roles: Roles | undefined;
  readonly plans: Plans | undefined;
  readonly identities: Identities<ControlPlaneProcess> | undefined;
  readonly rootKey: RootKey<ControlPlaneProcess> | undefined;
  readonly verifiers: VerifierProcess[] = [];
  readonly controlPlanes: ControlPlaneProcess[] = [];
  readonly keys: KnownKey[] = [];
  violation: Violation | undefined;
  /** A change is in the log, and nobody has heard of it yet. */
  onWritten: () => void = () => undefined;
  /** A verifier applied a change that a SYNC brought, and has not acknowledged it yet. */
  onSynced: (machine: Machine) => void = () => undefined;
  readonly #members = new Map<string, Following>();
  /** Apart, so that it does not change what other seeds are made of. */
  readonly #nearby: Random;
  /** Number of changes of the leeway, by API. */
  readonly #leewayTurns = new Map<string, number>();
  #machines = 0;
  #tags = 0;
  #operations = 0;

  constructor(plan: Plan, trace: Trace) {
    this.plan = plan;
    this.trace = trace;
    this.random = new Random(plan.seed + 2 ** 40);
    this.#nearby = new Random(plan.seed + 2 ** 42);
    this.rates = plan.rate || plan.sharedLimits ? new Rates() : undefined;
    this.roles = plan.roles ? new Roles(this.random, this.newTag, plan) : undefined;
    this.plans = plan.plansChange && new Plans(this);
    this.identities = plan.identities ? new Identities(this) : undefined;
    this.rootKey = plan.rootKeys && new RootKey(this);
    const names = ['A', 'B', 'C'].slice(0, plan.replicas + 1);
    const redisMs = () => this.network.redisMs;
    const node = (name: string) => new RedisNode(name, new RedisState(plan.redis, redisMs));
    const spare = plan.hasSpare ? node('D') : undefined;
    const readers = plan.nearbyFaultMs === undefined ? [] : [node('R')];
    this.group = new RedisGroup(names.map(node), spare, this.timeline, this.random, readers);
    this.network = new Network(this.timeline, this.random, this.group, plan.manners);
    if (plan.tokens) this.network.redisAheadMs = TRUE_WALL_MS - this.network.redisMs;
    this.places = plan.places || plan.sharedLimits ? new Places(this.network) : undefined;
    const { clockStepMs } = plan;
    this.refills =
      clockStepMs === undefined
        ? undefined
        : new Refills(this.network, this.ledger, clockStepMs, !isLossy(plan), plan.seed);
    const longestMs = Math.max(
      ...(plan.faults.includes('lease') ? plan.leasesMs : plan.leasesMs.slice(0, 1)),
    );
    this.checker = new Checker(this.timeline, this.group, {
      staleMsMax: 1.03 * longestMs + plan.deposedMs + 1,
      unknownMsMax: 1.03 * plan.limits.unknownTtlMs + plan.deposedMs + 1,
    });
    this.network.onExecuted = ({ machine, node }, kind, apiId, reply) => {
      trace.detail(
        this.timeline.nowMs,
        () => `${machine.name} at ${node.name} ${kind} ${apiId} ${JSON.stringify(reply)}`,
      );
    };
    this.group.onWrite = (node, apiId, kind) => {
      if (kind === 'write') this.onWritten();
      if (node === this.group.primary) this.check(() => this.refills?.look(node.state.api(apiId).pools));
      this.check(() => this.checker.wrote(node, apiId, kind, (member) => this.#members.get(member)));
    };
    this.group.onPromoted = (former) => {
      this.places?.promoted();
      this.check(() => this.checker.promoted(former, this.group.primary));
    };
    if (this.plans && this.roles) this.#openSharedLog(this.roles);
    for (const apiId of plan.apiIds) {
      for (const { state } of this.group.nodes) state.createApi(apiId, plan.leasesMs[0] as number);
      for (let i = 0; i < plan.keysPerApi; i++) this.#addKey(apiId);
      // Before the clock of Redis steps.
      this.refills?.look(this.group.primary.state.api(apiId).pools);
    }
    if (this.roles && !this.plans) this.#openSharedLog(this.roles);
    if (plan.tokens) this.#openTokens(plan.tokens);
    for (let i = 0; i < plan.verifiers; i++) this.startVerifier();
    for (let i = 0; i < plan.controlPlanes; i++) this.startControlPlane(plan.leasesMs[0] as number);
  }

  /** A text that no record had as its name before. */
  readonly newTag = (): string => `t${++this.#tags}`;

  #openTokens({ atStart, leewaysMs: [leewayMs] }: NonNullable<Plan['tokens']>): void {
    for (const apiId of this.plan.apiIds) {
      this.checker.leeways.set(apiId, leewayMs);
      for (const { state } of this.group.nodes) state.updateApi(apiId, '', { leeway: leewayMs });
    }
    if (!atStart) return;
    for (const apiId of [SHARED_LOG, ...this.plan.apiIds])
      for (const { state } of this.group.nodes)
        for (const step of ['fence-first', 'grant'] as const)
          state.setLending(apiId, step, 'first', leewayMs);
  }

  #openSharedLog(roles: Roles): void {
    for (const { state } of this.group.nodes) state.createApi(SHARED_LOG, this.plan.leasesMs[0] as number);
    for (let i = 0; i < 2; i++) {
      const role = roles.add();
      for (const { state } of this.group.nodes) roles.create(role, state);
      role.createdAtMs = 0;
    }
  }

  /** Notes a violation, wherever it was noticed, and ends the run. */
  check(look: () => void): void {
    try {
      look();
    } catch (error) {
      this.violation ??=
        error instanceof Violation ? error : new Violation('bug', (error as Error).stack ?? '');
      this.timeline.halted = true;
      this.note('violation', this.violation.message);
    }
  }

  fail(invariant: string, message: string): void {
    this.check(() => {
      throw new Violation(invariant, message);
    });
  }

  note(...parts: readonly (string | number | boolean)[]): void {
    this.trace.add(this.timeline.nowMs, parts);
  }

  startVerifier(): VerifierProcess {
    const machine = this.#machine('v');
    const following = new Map<string, Following>();
    const follow = (apiId: string) => {
      const present = following.get(apiId);
      if (present) return present;
      const fresh: Following = { member: '', live: false, position: 0, hash: '', leaseUntilMs: 0 };
      following.set(apiId, fresh);
      return fresh;
    };
    const { name } = machine;
    const registrations = new Map<string, string>();
    const sessionEvents: SessionEvents = {
      registering: (apiId, member) => {
        Object.assign(follow(apiId), { member, live: false });
        this.#members.set(member, follow(apiId));
      },
      registered: (apiId, { hash }) => registrations.set(apiId, hash),
      granted: (apiId, sentAtMs, leaseMs) => {
        follow(apiId).leaseUntilMs = Math.max(follow(apiId).leaseUntilMs, sentAtMs + leaseMs);
      },
    };
    const lanes = new Lanes(this.network, machine, true);
    const { findsKeys, olderVerifiers, credits } = this.plan;
    const isOlder = olderVerifiers > 0 && this.random.chance(olderVerifiers);
    const protocol = isOlder ? PROTOCOL : LATER_PROTOCOL;
    const hearsRecalls =
      credits !== undefined || this.plan.rate !== undefined || this.plan.sharedLimits !== undefined;
    const { group } = this;
    const replica = group.readers[0] && this.#nearby.pick([...group.readers, ...group.nodes]);
    const directory = new SimulatedDirectory(
      ...([lanes, sessionEvents, findsKeys, protocol, hearsRecalls] as const),
      replica,
    );
    const verifier = new Verifier({
      ...metered({ exchanges: directory, sliceMs: CREDITS_SLICE_MS }),
      directory,
      clock: machine,
      newNonce: this.random.token,
      random: this.random.next,
      limits: this.plan.limits,
      apiIds: [],
      foreignKeys: true,
      events: (apiId) => ({
        live: (position) => {
          Object.assign(follow(apiId), { live: true, position, hash: registrations.get(apiId) ?? '' });
          this.note(name, 'live', apiId, position);
        },
        dropped: (reason, position) => {
          follow(apiId).live = false;
          this.note(name, 'dropped', apiId, position, reason);
        },
        disconnected: (_, position) => this.note(name, 'disconnected', apiId, position),
        resumed: (position) => this.note(name, 'resumed', apiId, position),
        gap: (position, received) => this.note(name, 'gap', apiId, position, received),
        applied: ({ sequence, hash }, source) => {
          const followed = follow(apiId);
          this.note(name, 'applied', apiId, sequence, source);
          this.check(() => {
            if (sequence === followed.position + 1) return;
            throw new Violation('I3', `${name} at ${followed.position} of ${apiId} applied ${sequence}`);
          });
          Object.assign(followed, { position: sequence, hash });
          if (source === 'sync') this.onSynced(machine);
          else this.timeline.after(0.001, () => this.#askAll(process, apiId));
        },
      }),
    });
    verifier.start();
    const issuer = new TokenIssuer({ sign: JSON.stringify }, machine);
    const withTokens = this.plan.tokens && new StampedVerdicts(verifier, [new TokenStamp(issuer)]);
    const firstAskedAtMs = new Map<string, number>();
    const process = { machine, verifier, following, protocol, firstAskedAtMs, withTokens, issuer };
    this.verifiers.push(process);
    return process;
  }

  /** Asks a verifier for every key of an API that existed from the start. */
  #askAll(process: VerifierProcess, apiId: string): void {
    if (this.isQuiet) return;
    const keys = this.keys.slice(0, this.plan.apiIds.length * this.plan.keysPerApi);
    for (const key of keys) if (key.apiId === apiId || apiId === SHARED_LOG) void this.verify(process, key);
  }

  startControlPlane(leaseMs: number): ControlPlaneProcess {
    const machine = this.#machine('c');
    const { deposedMs, replicas } = this.plan;
    const log = new SimulatedChangeLog(
      new Lanes(this.network, machine, false),
      (apiId, hash) => this.checker.history.durable(apiId, hash),
      (pool, credits, write, state) => {
        // A refill that was due came before the change.
        if (state === this.group.primary.state)
          this.check(() => this.refills?.look(state.api(write.apiId).pools));
        this.ledger.grant(pool, credits);
        if (write.credits?.op !== 'decrement') return;
        this.ledger.reduced.add(pool);
        if (write.credits.value === EVERYTHING) this.ledger.empty(pool, write);
      },
      (successor, before, after, made) =>
        this.check(() => this.#rerolled(successor, versionOf(before), versionOf(after), versionOf(made))),
    );
    const fence = new Fence(log, machine, deposedMs, {
      ended: (outcome, apiId, sequence) => this.note(machine.name, outcome, apiId, sequence),
      killed: (apiId, members, sequence) =>
        this.note(machine.name, 'killed', apiId, sequence, ...members.map(({ name }) => name)),
      reaped: (apiId, members) =>
        this.note(machine.name, 'reaped', apiId, ...members.map(({ name }) => name)),
    });
    const changeWriter = new ChangeWriter({
      log,
      fence,
      clock: machine,
      limits: {
        fenceWaitMs: 30_000,
        pending: { changesMax: 100, stopsMax: 100 },
        replicated: replicas > 0,
        // Parts of two fit into the shortest log beside what a follower lacks.
        batch: { partMax: 2, periodMs: 0, giveWayMs: 25, lagMax: 1 },
      },
      durable: () => true,
      events: {
        rewritten: (apiId, keyId, outcome) => this.note(machine.name, 'rewritten', apiId, keyId, outcome),
      },
      chance: this.random.next,
    });
    const store = new SimulatedSweepStore(log, [...(this.roles ? [SHARED_LOG] : []), ...this.plan.apiIds]);
    const sweep = new Sweep({
      store,
      log,
      fence,
      clock: machine,
      logger: SILENT,
      leaseMs,
      deposedMs,
      newName: this.random.token,
    });
    void sweep.run();
    const process = { machine, log, store, changeWriter, sweep, leaseMs };
    this.controlPlanes.push(process);
    return process;
  }

  /** Ends a process at once. Its connections are closed by its kernel, or never where the machine went too. */
  crash(process: { readonly machine: Machine }): void {
    process.machine.alive = false;
    const power = this.random.chance(0.3);
    if (!power) for (const connection of this.network.of(process.machine)) connection.end();
    remove(this.verifiers, process);
    remove(this.controlPlanes, process);
  }

  /** Stops a verifier as a rollout does. */
  async stop(process: VerifierProcess): Promise<void> {
    remove(this.verifiers, process);
    await process.verifier.stop();
    this.note(process.machine.name, 'stopped');
    process.machine.alive = false;
  }

  /** Asks a verifier for a key; what becomes of it, which the checker was told already. */
  verify(process: VerifierProcess, key: KnownKey): Promise<Verdict | undefined> {
    const { promise, resolve } = Promise.withResolvers<Verdict | undefined>();
    const { machine, verifier, following, firstAskedAtMs, protocol, withTokens = verifier } = process;
    const begunAtMs = this.timeline.nowMs;
    const { rate, heldLimits, atLeast, credits } = this.plan;
    const some = atLeast && credits ? [1, 1, 3, Math.ceil(credits / 2), credits] : [0, 1, 1, 1, 3];
    const cost = credits === undefined ? 1 : this.random.pick(some);
    const costs = heldLimits && rate ? [1, 1, 2, Math.ceil(rate.limit / 2), rate.limit] : [0, 1, 1, 1, 2];
    const limitCost = rate && !rate.autoApply ? this.random.pick(costs) : 1;
    const hold =
      (this.places || heldLimits) && this.random.chance(0.7)
        ? { forMs: this.random.pick([1000, 3000]), ...(heldLimits && { names: [DEFAULT_LIMIT] }) }
        : undefined;
    const isHeld = hold !== undefined && heldLimits === true;
    const leastOf = (most: number) =>
      (atLeast && hold && this.random.pick([0, 1, Math.ceil(most / 2), most])) || undefined;
    const [leastCredits, least] = [leastOf(cost), leastOf(limitCost)];
    const attempts = new Attempts(this.timeline);
    const requirements = {
      get cost() {
        attempts.count();
        return cost;
      },
      limits: rate && !rate.autoApply ? [{ name: DEFAULT_LIMIT, cost: limitCost, isHeld, least }] : [],
      permissions: undefined,
    };
    const question = questionAbout(key.secret, { requirements, hold: hold && { ...hold, leastCredits } });
    const answer = (verdict: Verdict) => {
      const { code, entry, spending, effectivePermissions } = verdict;
      const took = verdict.hold?.credits ?? cost;
      const tookOfLimit = verdict.hold?.ratelimits?.[0]?.cost ?? limitCost;
      if (took > cost || took < (leastCredits ?? cost))
        this.fail(
          'I28',
          `${machine.name} holds credit ${took} of ${key.keyId}, not ${leastCredits} to ${cost}`,
        );
      if (tookOfLimit > limitCost || tookOfLimit < (least ?? limitCost))
        this.fail(
          'I28',
          `${machine.name} holds ${tookOfLimit} of ${key.keyId}, not ${least} to ${limitCost}`,
        );
      const uses = code === 'VALID' ? this.#counted(verdict, key, tookOfLimit, begunAtMs, machine.name) : [];
      if (verdict.hold && entry) this.#held(process, verdict, key, took, hold?.forMs ?? 0, begunAtMs, uses);
      const pool = entry?.pool || effectivePermissions?.identity?.pool;
      if (code === 'VALID' && pool) {
        this.check(() => this.ledger.accept(pool, took, machine.name));
        if (spending?.remaining === undefined)
          this.fail('I17', `${machine.name} accepted ${key.keyId} for nothing`);
      }
      if (code === 'VALID' && rate) {
        if (spending?.limits?.length !== 1)
          this.fail('I17', `${machine.name} looked at no limit of ${key.keyId}`);
      }
      const seen = entry && {
        ...{ tag: entry.details?.name ?? '', enabled: entry.enabled, expires: entry.expires },
        roles: entry.links?.text ?? '',
        owner: entry.details?.externalId ?? '',
      };
      this.note(machine.name, code, key.keyId, seen?.tag ?? '');
      if (code === 'VALID' && this.plan.tokens) this.#issue(process, key, question);
      this.check(() => {
        if (entry && entry.keyId !== key.keyId) throw new Violation('I9', `${entry.keyId} for ${key.keyId}`);
        this.checker.answered({
          ...{ verifier: machine.name, protocol, key, code, seen, begunAtMs },
          monotonicMs: machine.monotonicMs(),
          following: following.get(key.apiId),
          granted: {
            tags: effectivePermissions?.roles ?? [],
            owner: effectivePermissions?.identity && {
              tag: effectivePermissions.identity.externalId,
              enabled: effectivePermissions.identity.enabled,
            },
            following: following.get(SHARED_LOG),
          },
          roles: this.#tied(),
          firstAskedAtMs: firstAskedAtMs.get(key.keyId) ?? 0,
        });
      });
      resolve(verdict);
    };
    machine.deliver(() => {
      this.#askWithRootKey(process);
      this.#askLimit(process);
      if (!firstAskedAtMs.has(key.keyId)) firstAskedAtMs.set(key.keyId, this.timeline.nowMs);
      const verdict = withTokens.decide(question);
      const token = verdict?.stamps?.['X-Key-Token'];
      if (token) this.check(() => this.#handedOut(process, question, token));
      if (verdict) return answer(verdict);
      withTokens.lookUp(question).then(answer, (error: unknown) => {
        if (error instanceof Violation)
          this.check(() => {
            throw error;
          });
        this.checker.counts.refused++;
        this.note(machine.name, '503', key.keyId, (error as Error).message);
        resolve(undefined);
      });
    });
    return promise;
  }

  /** Issues a token about a key that was accepted, if one may be. */
  #issue(process: VerifierProcess, key: KnownKey, question: Question): void {
    const { machine, verifier, following, issuer } = process;
    const issue = issuer.issue(verifier.decide({ ...question, isRecheck: true }));
    if (typeof issue === 'string') return;
    const { entry, effectivePermissions } = issue.verdict;
    const { identity } = effectivePermissions ?? {};
    this.checker.issued({
      ...{ verifier: machine.name, key, endMs: 1000 * issue.endS },
      hash: following.get(key.apiId)?.hash ?? '',
      sharedHash: following.get(SHARED_LOG)?.hash ?? '',
      ids: [...(entry.links?.text.split(' ') ?? []), ...(identity ? [identity.id] : [])],
    });
  }

  /** Looks at a token for a gateway, which may be an earlier one. */
  #handedOut({ machine, verifier, issuer }: VerifierProcess, question: Question, token: string): void {
    const issue = issuer.issue(verifier.decide({ ...question, isRecheck: true }));
    const { exp, externalId, permissions } = JSON.parse(token);
    if (typeof issue === 'string') throw new Violation('I29', `${machine.name} hands out a token: ${issue}`);
    if (exp > issue.endS)
      throw new Violation('I29', `${machine.name} hands out a token that ends at ${exp}, not ${issue.endS}`);
    const now = fieldValues(issue.verdict);
    if (externalId !== now.externalId || `${permissions}` !== `${now.permissions ?? ''}`)
      throw new Violation('I29', `${machine.name} hands out ${token} of ${JSON.stringify(now)}`);
  }

  /** Switches the tokens of an API off or on, as apis.ts does. */
  async switchTokens({ machine, store }: ControlPlaneProcess, apiId: string): Promise<void> {
    const token = this.random.token();
    try {
      const { isLending, lendingName, outlivesMs } = await store.head(apiId);
      const set = store.setLending.bind(store);
      const isDone = isLending
        ? await set(apiId, 'stop', lendingName)
        : (await fenceLending(set, apiId, token, outlivesMs)) &&
          (await store.updateApi(apiId, token, { T: 1 }));
      this.note(machine.name, 'tokens', apiId, isLending ? 'off' : 'on', isDone);
    } catch {
      this.note(machine.name, 'tokens', apiId, 'unknown');
    }
  }

  /**
   * Changes the leeway of an API, as apis.ts does. Others accept tokens for a shorter time before somebody says so, and for a longer
   * one when the change is complete.
   */
  async changeLeeway({ machine, store, changeWriter }: ControlPlaneProcess, apiId: string): Promise<void> {
    const [token, leewayMs] = [this.random.token(), this.random.pick(this.plan.tokens?.leewaysMs ?? [0])];
    const { leeways } = this.checker;
    if (leewayMs < (leeways.get(apiId) ?? 0)) leeways.set(apiId, leewayMs);
    const turn = (this.#leewayTurns.get(apiId) ?? 0) + 1;
    this.#leewayTurns.set(apiId, turn);
    try {
      const { lendingName } = await store.head(apiId);
      const set = store.setLending.bind(store);
      const isFenced = lendingName === '' || (await fenceLending(set, apiId, token, leewayMs));
      const isSet =
        isFenced && (await store.updateApi(apiId, lendingName === '' ? '' : token, { leeway: leewayMs }));
      const write = { apiId, operation: 'noop', keyId: '', fields: {}, endsLent: true } as const;
      const done = isSet ? await changeWriter.apply(write) : undefined;
      const isComplete = done?.state === 'complete' && this.#leewayTurns.get(apiId) === turn;
      if (isComplete) this.checker.leewayIs(apiId, leewayMs);
      this.note(machine.name, 'leeway', apiId, leewayMs, isComplete);
    } catch {
      this.note(machine.name, 'leeway', apiId, 'unknown');
    }
  }

  /** Uses of limits that were accepted. */
  #counted(
    { spending, effectivePermissions }: Verdict,
    key: KnownKey,
    cost: number,
    begunAtMs: number,
    who: string,
  ): Use[] {
    const uses: Use[] = [];
    for (const { limit } of spending?.limits ?? []) {
      const isShared = limit.isPerIdentity && effectivePermissions?.identity !== undefined;
      const pool = isShared ? effectivePermissions.identity.id : key.keyId;
      const rate = { limit: limit.limit, duration: limit.durationMs };
      const inForce = this.plans
        ? this.plans.inForce(key, pool, begunAtMs)
        : this.plan.sharedLimits
          ? Number.POSITIVE_INFINITY
          : this.#inForce(key, begunAtMs);
      this.check(() => {
        const use = this.rates?.accept(pool, rate, isShared ? 1 : cost, this.timeline.nowMs, who, inForce);
        if (use) uses.push(use);
      });
    }
    return uses;
  }

  /** The largest amount of a limit of a key that may be in force; undefined = limits do not change. */
  #inForce(key: KnownKey, begunAtMs: number): number | undefined {
    if (!this.plan.limitsChange) return undefined;
    const amounts = this.checker.versionsInForce(key, begunAtMs).map(({ limits }) => limitIn(limits));
    return Math.max(...amounts);
  }

  /** Work that was accepted, which ends after a while, and says what it cost. */
  #held(
    { machine, verifier, following }: VerifierProcess,
    { entry, hold, spending, effectivePermissions }: Verdict,
    key: KnownKey,
    reserved: number,
    forMs: number,
    begunAtMs: number,
    [use]: readonly Use[],
  ): void {
    if (!entry || !hold) return;
    const { id } = hold;
    // A change may give the key another.
    const { pool } = entry;
    const heldAtMs = this.timeline.nowMs;
    const endsAtMs = machine.monotonicMs() + forMs;
    const ends: (() => void)[] = [];
    for (const { limit } of spending?.places ?? []) {
      const isShared = limit.isPerIdentity && effectivePermissions?.identity !== undefined;
      const apiId = isShared ? SHARED_LOG : entry.epoch.apiId;
      const member = following.get(apiId)?.member ?? '';
      // The timer that ends it may be late.
      const runs = () => machine.alive && machine.monotonicMs() < endsAtMs;
      const work = { apiId, member, machine: machine.name, limit: limit.limit, runs };
      const inForce = isShared ? limit.limit : (this.#inForce(key, begunAtMs) ?? limit.limit);
      const name = isShared ? effectivePermissions.identity.id : entry.keyId;
      const most = this.plans
        ? this.plans.inForce(key, name, begunAtMs)
        : isShared
          ? Number.POSITIVE_INFINITY
          : inForce;
      const isAtPrimary = this.network.primaryFor(machine) === this.group.primary;
      this.check(() => {
        if (this.places) ends.push(this.places.begin(name, work, most, machine.name, isAtPrimary));
      });
    }
    if (pool) this.ledger.hold(pool, reserved);
    let isOver = false;
    const over = () => {
      for (const end of ends) end();
      if (pool && !isOver) this.ledger.hold(pool, -reserved);
      isOver = true;
      this.releasedAtMs = this.timeline.nowMs;
    };
    // The verifier's own timer was first.
    machine.after(forMs, over);
    const cost = this.random.chance(0.2)
      ? undefined
      : this.random.pick([0, reserved, Math.max(0, reserved - 2), reserved + 2]);
    const times = this.random.pick([1, 1, 2]);
    const work = { key, pool, reserved, heldAtMs, use: this.plan.heldLimits && use };
    const costs = { ...(cost !== undefined && { [CREDITS]: cost }), ...this.#costOf(work.use) };
    machine.after(this.random.exponential(forMs / 3), () => {
      for (let i = 0; i < times; i++) this.#release(machine, verifier, id, work, costs, i === 0, over);
    });
  }

  /** What work cost of a rate limit, as far as it says so. */
  #costOf(use: Use | undefined): Costs {
    if (use === undefined || this.random.chance(0.2)) return {};
    const { cost } = use;
    return { [DEFAULT_LIMIT]: this.random.pick([0, 0, cost, Math.max(0, cost - 1), cost + 2]) };
  }

  #release(
    machine: Machine,
    verifier: Verifier<Metering>,
    id: string,
    { key, pool, reserved, heldAtMs, use }: Work,
    costs: Costs,
    isFirst: boolean,
    over: () => void,
  ): void {
    const begunAtMs = this.timeline.nowMs;
    const settle = ({ charged, short = 0, ratelimits }: Release) => {
      this.note(
        machine.name,
        'released',
        charged,
        short,
        ...(ratelimits ? [JSON.stringify(ratelimits)] : []),
      );
      over();
      if (!isFirst) return;
      if (use) this.#settleLimit(key, use, costs[DEFAULT_LIMIT], ratelimits?.[0], begunAtMs, machine.name);
      if (!pool) return;
      this.check(() => this.ledger.settle(pool, charged - reserved, heldAtMs, machine.name));
      const wanted = costs[CREDITS] ?? reserved;
      if (charged + short !== wanted) this.fail('I17', `${machine.name} charged ${charged} of ${wanted}`);
    };
    try {
      const release = verifier.meter.holds.release(id, costs);
      if (release instanceof Promise) release.then(settle, () => this.note(machine.name, 'not released'));
      else settle(release);
    } catch {
      this.note(machine.name, 'over');
    }
  }

  /** What counts of the work in its window, and what it cost more in the present one. */
  #settleLimit(
    key: KnownKey,
    use: Use,
    said: number | undefined,
    release: NonNullable<Release['ratelimits']>[number] | undefined,
    begunAtMs: number,
    who: string,
  ): void {
    const { rate } = this.plan;
    const held = use.cost;
    const { charged = 0, short = 0, lost = 0 } = release ?? {};
    const cost = Math.min(charged, held);
    if (charged + short !== (said ?? held) || lost > held - cost)
      this.fail('I17', `${who} charged ${charged}, ${short} short and ${lost} lost, of ${said} and ${held}`);
    use.cost = lost > 0 ? held : cost;
    if (rate === undefined || charged <= held) return;
    const inForce = this.#inForce(key, begunAtMs);
    const now = { ...rate, limit: inForce ?? rate.limit };
    this.check(
      () => void this.rates?.accept(key.keyId, now, charged - held, this.timeline.nowMs, who, inForce),
    );
  }

  /** Asks a verifier about a limit of which questions say two amounts. */
  #askLimit({ machine, verifier }: VerifierProcess): void {
    const { sharedLimits } = this.plan;
    if (!sharedLimits || this.random.chance(0.5)) return;
    const attempts = new Attempts(this.timeline);
    const limit = this.plans ? sharedLimits[1] : this.random.pick(sharedLimits);
    const begunAtMs = this.timeline.nowMs;
    const question = {
      ...{ ...callsOf(this.plan), limit },
      get cost() {
        attempts.count();
        return 1;
      },
    };
    verifier.meter.rateLimits.check(question).then(
      ({ passed, limit: applied }) => {
        this.note(machine.name, passed ? 'passed' : 'not passed', applied);
        if (!passed) return;
        const inForce = this.plans?.overrideInForce(limit, begunAtMs) ?? Number.POSITIVE_INFINITY;
        const { nowMs } = this.timeline;
        const rate = { ...question, limit: applied };
        this.check(() => void this.rates?.accept('calls ada', rate, 1, nowMs, machine.name, inForce));
      },
      (error: unknown) => {
        if (error instanceof Violation)
          this.check(() => {
            throw error;
          });
      },
    );
  }

  /** Asks a verifier whether it accepts the root key, where there is one. */
  #askWithRootKey({ machine, verifier, following }: VerifierProcess): void {
    const { rootKey } = this;
    if (!rootKey) return;
    const begunAtMs = this.timeline.nowMs;
    rootKey.ask(verifier.callers, (accepted) => {
      this.note(machine.name, accepted ? 'root key' : 'no root key');
      this.check(() =>
        this.checker.admitted({
          ...{ verifier: machine.name, accepted, record: rootKey.record, begunAtMs },
          ...{ monotonicMs: machine.monotonicMs(), following: following.get(SHARED_LOG) },
        }),
      );
    });
  }

  /** Writes a change and waits as the caller of updateKey does; how it was told that it is complete, if it was. */
  async write(
    process: ControlPlaneProcess,
    write: Write,
    waitMs: number,
  ): Promise<'acks' | 'fence' | 'nothing to change' | undefined> {
    const [about, tag] = [write.keyId || write.apiId, write.fields.n ?? ''];
    this.note(process.machine.name, write.operation, about, tag, write.fields.e ?? '');
    try {
      const propagation = await process.changeWriter.apply(write, waitMs);
      if (!propagation) return 'nothing to change';
      const { state, sequence } = propagation;
      // While only tokens are pending, it says by what the others are complete.
      const by = state === 'complete' ? propagation.by : undefined;
      this.note(process.machine.name, state, about, sequence, by ?? '');
      if (write.operation === 'noop') return by;
      if (by) this.ledger.complete(write, this.timeline.nowMs);
      if (by) this.#completed(about, tag, sequence, by);
      else if (write.operation === 'update' || write.operation === 'create')
        this.timeline.after(this.random.between(0, this.plan.tokens ? 15_000 : 3000), () =>
          this.#ask(write, sequence),
        );
      return by;
    } catch (error) {
      if (error instanceof ApiError && error.code === 'VERIFIERS_TOO_OLD') this.checker.counts.heldOff++;
      this.note(process.machine.name, 'failed', about, (error as Error).message);
      return undefined;
    }
  }

  /** Changes several keys of an API at once and waits as the caller of updateKeys does; whether all is complete. */
  async writeAll(
    process: ControlPlaneProcess,
    writes: readonly [Write, ...Write[]],
    waitMs: number,
  ): Promise<boolean> {
    this.note(process.machine.name, 'batch', ...writes.map(({ keyId, fields }) => `${keyId} ${fields.n}`));
    try {
      const { outcomes: applied, propagation } = await process.changeWriter.applyAll(writes, waitMs);
      const { state, sequence } = propagation ?? { state: 'nothing to change', sequence: 0 };
      const by = state === 'complete' ? propagation?.by : undefined;
      this.note(process.machine.name, 'batch', state, sequence, by ?? '');
      for (const [i, outcome] of applied.entries()) {
        const write = writes[i];
        if (!write || 'failure' in outcome) continue;
        if (by) this.#completed(write.keyId, write.fields.n ?? '', outcome.sequence, by);
        else
          this.timeline.after(this.random.between(0, this.plan.tokens ? 15_000 : 3000), () =>
            this.#ask(write, outcome.sequence),
          );
      }
      return by !== undefined || !propagation;
    } catch (error) {
      this.note(process.machine.name, 'batch failed', (error as Error).message);
      return false;
    }
  }

  /** Somebody was told that a change is complete. Every verifier is asked at once whether it is so. */
  #completed(about: string, tag: string | undefined, sequence: number, by: 'acks' | 'fence'): void {
    this.check(() => this.checker.complete(about, tag, sequence, by));
    const isRole = this.#tied().some(({ keyId }) => keyId === about);
    const [key, ...others] = this.keys.filter(
      ({ keyId, apiId }) => isRole || keyId === about || apiId === about,
    );
    if (!key) return;
    this.#askEverywhere(isRole ? [key, ...others.slice(0, 2), ...others.slice(2).slice(-3)] : [key]);
  }

  #askEverywhere(keys: readonly KnownKey[]): void {
    if (this.isQuiet) return;
    this.timeline.after(0.001, () => {
      for (const process of this.verifiers) for (const key of keys) void this.verify(process, key);
    });
  }

  /** Roles, identities and what verifiers know of root keys, each a record of the shared log. */
  #tied(): readonly KnownKey[] {
    const rootKeys = this.rootKey ? [this.rootKey.record] : [];
    return [...(this.roles?.all ?? []), ...(this.identities?.all ?? []), ...rootKeys];
  }

  /** An update that sets, keeps or clears what older verifiers would ignore. */
  upgraded(update: Write): Write {
    const needs = this.#needs();
    if (needs === 1) return update;
    const later = this.random.chance(0.7);
    const fields: Write['fields'] = { ...update.fields, ...{ [LATER_FIELD]: later ? 'x' : '' } };
    return { ...update, fields, needs: later ? needs : 1 };
  }

  #needs(): number {
    return this.plan.olderVerifiers > 0 && this.random.chance(0.3) ? LATER_PROTOCOL : 1;
  }

  /** Something to do to credits, where keys have any; with a name where calls without an answer are sent again. */
  creditsChange(): Write['credits'] {
    if (this.plan.credits === undefined || this.random.chance(0.5)) return undefined;
    const value = this.random.whole(1, this.plan.credits);
    const thresholds = ['', '50', '20 80 95'][value % 3] ?? '';
    if (this.plan.refill !== undefined && this.random.chance(0.4))
      return { op: 'refill', refill: this.random.pick(['', this.#refill, `d ${value}`]), thresholds };
    if (this.plan.limitsChange && this.random.chance(0.2))
      return { op: 'decrement', value: EVERYTHING, thresholds };
    const op = this.random.pick(['set', 'set', 'increment', 'increment', 'decrement'] as const);
    return {
      op,
      value,
      thresholds,
      ...(this.plan.rerolls > 0 ? { operation: `o${++this.#operations}` } : {}),
    };
  }

  /** The fields of an update: always with a name of its own, sometimes too long for the log. */
  fields(enabled: boolean): Write['fields'] {
    const m = this.random.chance(0.15) ? { m: `{"long":"${'x'.repeat(150)}"}` } : { m: '' };
    const R = this.roles && { R: this.plans?.rolesOf() ?? this.roles.some() };
    const o = this.identities && !this.plans && this.random.chance(0.3) ? { o: this.identities.owner() } : {};
    const n = this.newTag();
    const P = this.plan.tokens && { P: n };
    return { e: enabled ? '1' : '0', n, ...m, ...R, ...o, ...P, ...this.#changedLimits() };
  }

  /** Makes a role; a key may be given it once all replicas have it. */
  async createRole({ log, machine }: ControlPlaneProcess, roles: Roles): Promise<void> {
    const role = roles.add();
    try {
      const { reply, replicated } = await log.durably(SHARED_LOG, (state) => roles.create(role, state));
      if (reply && replicated) role.createdAtMs = this.timeline.nowMs;
      this.note(machine.name, 'role', role.keyId, reply && replicated);
    } catch (error) {
      this.note(machine.name, 'no role', role.keyId, (error as Error).message);
    }
  }

  /**
   * Creates a key as keys.ts does: pointers first, then the record, each on all replicas.
   * @param isPointed whether the pointers are there already, as where an import was interrupted
   */
  async createKey(process: ControlPlaneProcess, apiId: string, isPointed = false): Promise<void> {
    const key = this.#newKey(apiId, this.#needs());
    const secretHash = hashSecret(key.secret);
    const { log } = process;
    this.keys.push(key);
    if (isPointed) for (const { state } of this.group.nodes) point(state, key, secretHash);
    try {
      const setPointers = () => [
        log.durably('', (state) => state.point(secretPointer(secretHash), formatPointer(apiId, key.keyId))),
        log.durably('', (state) => state.point(idPointer(key.keyId), apiId)),
      ];
      const steps = [
        await Promise.all(isPointed ? [] : setPointers()),
        await Promise.all([
          log.durably(apiId, (state) =>
            state.createKey(
              ...([apiId, key.keyId, this.#recordOf(key, secretHash), key.created.needs] as const),
              this.plan.credits,
              this.#refill,
            ),
          ),
        ]),
      ];
      if (!steps.flat().every(({ reply, replicated }) => reply && replicated)) throw new Error('not durable');
      key.createdAtMs = this.timeline.nowMs;
      this.note(process.machine.name, 'created', key.keyId);
      if (this.identities) this.#askEverywhere([key]);
    } catch {
      this.note(process.machine.name, 'not created', key.keyId);
    }
  }

  /**
   * Rerolls a key as the route does: pointers first, then the script, and the new key is shown where all replicas have it.
   * @returns whether it was
   */
  async reroll(
    process: ControlPlaneProcess,
    { apiId, keyId, pool }: KnownKey,
    graceMs: number,
    operationId: string,
    waitMs: number,
  ): Promise<boolean> {
    const { machine, log, changeWriter } = process;
    const made: KnownKey = {
      ...{ apiId, keyId: `k${this.keys.length}`, secret: this.random.token(), pool },
      created: versionOf(undefined),
      createdAtMs: Number.POSITIVE_INFINITY,
    };
    this.keys.push(made);
    this.note(machine.name, 'reroll', keyId, made.keyId, graceMs);
    const secretHash = hashSecret(made.secret);
    const successor = {
      ...{ keyId: made.keyId, secretHash, start: '', bytes: undefined, operationId },
      latestMs: graceMs === 0 ? 1 : Math.round(machine.wallMs() + graceMs),
    };
    try {
      const pointed = await Promise.all([
        log.durably('', (state) => state.point(secretPointer(secretHash), formatPointer(apiId, made.keyId))),
        log.durably('', (state) => state.point(idPointer(made.keyId), apiId)),
      ]);
      if (!pointed.every(({ reply, replicated }) => reply && replicated)) throw new Error('not durable');
      let isEverywhere = false;
      const write = { apiId, operation: 'update', keyId, fields: {}, successor } as const;
      const propagation = await changeWriter.apply(write, waitMs, ({ replicated }) => {
        isEverywhere = replicated;
      });
      const { state, sequence = 0 } = propagation ?? {};
      const by = state === 'complete' ? propagation?.by : undefined;
      this.note(machine.name, 'rerolled', keyId, sequence, by ?? '');
      if (by) this.#completed(keyId, undefined, sequence, by);
      if (!propagation || (!by && !isEverywhere)) return false;
      made.createdAtMs = this.timeline.nowMs;
      return true;
    } catch (error) {
      this.note(machine.name, 'not rerolled', keyId, (error as Error).message);
      return false;
    }
  }

  #rerolled(successor: string, before: KeyVersion, after: KeyVersion, made: KeyVersion): void {
    this.checker.counts.rerolled++;
    const key = this.keys.find(({ keyId }) => keyId === successor);
    if (key) key.created = made;
    if (before.expires > 0 && (after.expires === 0 || after.expires > before.expires))
      throw new Violation('I18', `a key that ended at ${before.expires} ends at ${after.expires}`);
  }

  /** Asks any control plane how an update ended after its caller was told `pending`. */
  #ask({ apiId, keyId, fields }: Write, sequence: number): void {
    const process = this.controlPlanes.length > 0 ? this.random.pick(this.controlPlanes) : undefined;
    if (!process) return;
    process.machine.deliver(() => {
      process.changeWriter.status(apiId, keyId, sequence).then(
        (standing) => {
          this.note(process.machine.name, 'standing', keyId, sequence, standing?.state ?? '');
          if (standing?.state !== 'complete') return;
          // A failover may have given the sequence to another change of the key; the question cannot tell them apart.
          if (this.checker.history.isAmbiguous(keyId, sequence)) return;
          this.#completed(keyId, fields.n ?? '', sequence, 'acks');
        },
        () => this.note(process.machine.name, 'no standing', keyId, sequence),
      );
    });
  }

  #addKey(apiId: string): void {
    const key = this.#newKey(apiId);
    const secretHash = hashSecret(key.secret);
    for (const { state } of this.group.nodes) {
      point(state, key, secretHash);
      state.createKey(apiId, key.keyId, this.#recordOf(key, secretHash), 1, this.plan.credits, this.#refill);
    }
    key.createdAtMs = 0;
    this.keys.push(key);
  }

  get #refill(): string {
    return this.plan.refill === undefined ? '' : `d ${this.plan.refill}`;
  }

  #recordOf(key: KnownKey, secretHash: string): Record<string, string> {
    const { owner, roles } = key.created;
    const links = { ...(owner ? { o: owner } : {}), ...(roles ? { R: roles } : {}) };
    return { ...recordOf(key, secretHash), ...this.#limits(), ...links };
  }

  /** The limits of a key, with another amount than the plan says where one is given. */
  #limits(amount?: number): Readonly<Record<string, string>> {
    const { autoApply, ...rate } = this.plan.rate ?? { autoApply: undefined };
    const limit = amount === undefined ? {} : { limit: amount };
    const { places } = this.plan;
    return {
      ...(autoApply === true ? { L: JSON.stringify([{ name: 'each', ...rate, ...limit, autoApply }]) } : {}),
      ...(autoApply === false ? { l: JSON.stringify({ ...rate, ...limit }) } : {}),
      ...(places ? { C: JSON.stringify([{ name: 'jobs', limit: places, ...limit }]) } : {}),
    };
  }

  #changedLimits(): Readonly<Record<string, string>> {
    if (!this.plan.limitsChange || this.random.chance(0.5)) return {};
    const { limit = this.plan.places ?? 1 } = this.plan.rate ?? {};
    return this.#limits(this.random.pick([limit, 2 * limit, Math.ceil(limit / 4)]));
  }

  #newKey(apiId: string, needs = 1): KnownKey {
    const keyId = `k${this.keys.length}`;
    const created = {
      ...{ tag: this.newTag(), enabled: true, expires: 0 },
      ...{ gone: false, needs, roles: this.plans?.rolesOf() ?? '', apis: '' },
      owner: this.plans ? OWNER : (this.identities?.owner() ?? ''),
      limits: limitsText(this.#limits()),
    };
    const { credits } = this.plan;
    const pool = credits === undefined ? '' : `pool-${keyId}`;
    if (credits !== undefined) this.ledger.grant(pool, credits);
    return {
      apiId,
      keyId,
      secret: `secret-of-${keyId}`,
      created,
      pool,
      createdAtMs: Number.POSITIVE_INFINITY,
    };
  }

  #machine(kind: 'v' | 'c'): Machine {
    const { ratesFrom, ratesTo, rates } = this.plan;
    const rate = {
      any: this.random.between(ratesFrom, ratesTo),
      extreme: this.random.pick([ratesFrom, ratesTo]),
      worst: kind === 'v' ? ratesFrom : ratesTo,
    }[rates];
    const skewMs = this.plan.tokens ? 1200 : undefined;
    return new Machine(`${kind}${this.#machines++}`, this.timeline, this.random, rate, skewMs);
  }
}

/** Throws where a question is decided so often at one instant that others would wait for it. */
class Attempts {
  readonly #timeline: Timeline;
  #atMs = -1;
  #count = 0;

  constructor(timeline: Timeline) {
    this.#timeline = timeline;
  }

  count(): void {
    if (this.#atMs !== this.#timeline.nowMs) this.#count = 0;
    this.#atMs = this.#timeline.nowMs;
    if (++this.#count > ATTEMPTS_MAX)
      throw new Violation('I25', `a question was decided ${this.#count} times at once`);
  }
}

/** The cost of a question is read at most three times when it is decided. */
const ATTEMPTS_MAX = 60;

/** The amount in the text of a key's only limit. */
const limitIn = (limits: string): number => Number(/"limit":(\d+)/.exec(limits)?.[1] ?? 0);

const nothing = () => undefined;
const SILENT = {
  ...{ trace: nothing, debug: nothing, info: nothing },
  ...{ warn: nothing, error: nothing, fatal: nothing },
};

const recordOf = ({ created, pool }: KnownKey, secretHash: string) => ({
  ...{ p: secretHash, e: created.enabled ? '1' : '0', n: created.tag },
  ...(created.needs > 1 ? { [LATER_FIELD]: 'x' } : {}),
  ...(pool ? { q: pool } : {}),
});

function point(state: RedisState, { apiId, keyId }: KnownKey, secretHash: string): void {
  state.point(secretPointer(secretHash), formatPointer(apiId, keyId));
  state.point(idPointer(keyId), apiId);
}

function remove<T>(items: T[], item: unknown): void {
  const at = items.indexOf(item as T);
  if (at >= 0) items.splice(at, 1);
}
