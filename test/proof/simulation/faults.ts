import { apiKeys, SHARED_LOG } from '../../../shared/redis/redis-keys.ts';
import type { KnownKey } from './checker.ts';
import type { Machine } from './clock.ts';
import type { Passage } from './network.ts';
import type { RedisNode } from './nodes.ts';
import type { Fault } from './plan.ts';
import { Random } from './random.ts';
import type { ControlPlaneProcess, World } from './world.ts';

/** Breaks things at random moments until `stop`, which mends what can be mended. */
export class Faults {
  readonly #world: World;
  /** Apart from the world's, so that what was added later does not change what a seed is made of. */
  readonly #chance: Random;
  readonly #acts: Record<Fault, () => void>;
  #stopped = false;
  #failingOver = false;

  constructor(world: World) {
    this.#world = world;
    this.#chance = new Random(world.plan.seed + 2 ** 41);
    this.#acts = {
      link: () => this.#link(),
      isolation: () => this.#isolate(this.#machine(), ['out']),
      pause: () => this.#pause(),
      'crash verifier': () => this.#crashVerifier(),
      'crash control plane': () => this.#restartControlPlane(world.random.pick(world.controlPlanes).leaseMs),
      'restart verifier': () => this.#restartVerifier(),
      'wall clock': () => this.#machine().jumpWallClock(world.random.pick([-3.6e6, -5000, 700, 3.6e6])),
      cut: () => {
        for (const connection of world.network.of(this.#machine())) {
          if (world.random.chance(0.7)) connection.closed();
        }
      },
      'redis restart': () => this.#restartRedis(),
      'replica stall': () => this.#stallReplica(),
      failover: () => this.#failover(),
      lease: () => this.#restartControlPlane(world.random.pick(world.plan.leasesMs)),
    };
  }

  /** Begins. Each kind of fault comes on its own, about every `faultPeriodMs`, some kinds less often. */
  start(): void {
    const { plan, random, timeline } = this.#world;
    const { verifiers } = this.#world;
    this.#world.onSynced = (machine) => {
      if (!this.#stopped && random.chance(plan.isolatedSyncs)) this.#isolate(machine, ['out']);
    };
    this.#world.onWritten = () => {
      if (this.#stopped || verifiers.length === 0 || !random.chance(plan.isolatedWrites)) return;
      this.#isolate(random.pick(verifiers).machine, ['out', 'back']);
    };
    this.#world.network.onSubscribed = (machine, channel) => {
      if (!this.#stopped && this.#failingOver && random.chance(0.5)) this.#overwrite(machine, channel);
    };
    if (plan.nearbyFaultMs !== undefined) this.#breakReaders(plan.nearbyFaultMs);
    for (const fault of plan.faults) {
      const periodMs = plan.faultPeriodMs * (SELDOM.includes(fault) ? 5 : 2);
      const next = () =>
        timeline.after(random.exponential(periodMs), () => {
          if (this.#stopped) return;
          this.#world.note('fault', fault);
          this.#acts[fault]();
          next();
        });
      next();
    }
  }

  /** What happens to a replica that only verifiers read: it stalls, often for longer than a lease, or jumps back. */
  #breakReaders(periodMs: number): void {
    const { group, timeline, plan } = this.#world;
    const [leaseMs = 0] = plan.leasesMs;
    for (const reader of group.readers) {
      let before = reader.state.clone();
      const next = () =>
        timeline.after(this.#chance.exponential(periodMs), () => {
          if (this.#stopped) return;
          const kind = this.#chance.pick(['stall', 'stall', 'mend', 'remember', 'jump back'] as const);
          this.#world.note('reader', kind);
          if (kind === 'remember') before = reader.state.clone();
          else if (kind === 'jump back') group.jumpBack(reader, before.clone());
          else group.stall(reader, kind === 'stall');
          if (kind === 'stall' && this.#chance.chance(0.5))
            timeline.after(this.#chance.exponential(leaseMs * 2), () => group.stall(reader, false));
          next();
        });
      next();
    }
  }

  /** Nothing breaks any more; links are mended, everyone runs, all servers are up. */
  stop(): void {
    this.#stopped = true;
    const { network, group, verifiers, controlPlanes, timeline } = this.#world;
    network.mend();
    network.uninformed.clear();
    for (const { machine } of [...verifiers, ...controlPlanes]) machine.resume();
    for (const node of group.nodes) {
      group.stall(node, false);
      if (!node.up) group.power(node, true);
      else if (node !== group.primary && !group.follows(node)) group.resync(node);
    }
    this.#world.note('calm', timeline.nowMs);
  }

  #machine(): Machine {
    const { random, verifiers, controlPlanes } = this.#world;
    return random.pick([...verifiers, ...controlPlanes]).machine;
  }

  /** Something that lasts, and its end, unless `stop` was first. */
  #later(meanMs: number, mend: () => void): void {
    const { timeline, random } = this.#world;
    timeline.after(random.exponential(meanMs), () => {
      if (!this.#stopped) mend();
    });
  }

  /** Duration of most faults: from a moment to more than a lease. */
  #spanMs(): number {
    const { random, plan } = this.#world;
    const [leaseMs = 0] = plan.leasesMs;
    return random.pick([5, 50, leaseMs / 4, leaseMs, leaseMs * 1.5]);
  }

  #link(): void {
    const { random, network, group } = this.#world;
    const machine = this.#machine();
    const node = random.chance(0.8) ? network.primaryFor(machine) : random.pick(group.nodes);
    const link = network.link(machine, node);
    const passage = random.pick<Passage>(['held', 'held', 'lost']);
    const directions = random.pick([['out'], ['back'], ['out', 'back']] as const);
    for (const direction of directions) network.set(link, direction, passage);
    this.#later(this.#spanMs() * 3, () => {
      for (const direction of directions) network.set(link, direction, 'open');
    });
  }

  /** Nothing that a machine sends, or is sent, arrives any more, often for longer than its lease. */
  #isolate(machine: Machine, directions: readonly ('out' | 'back')[]): void {
    const { network, plan } = this.#world;
    const link = network.link(machine, network.primaryFor(machine));
    for (const direction of directions) network.set(link, direction, 'lost');
    this.#later(plan.isolationMs, () => {
      for (const direction of directions) network.set(link, direction, 'open');
    });
  }

  #pause(): void {
    const machine = this.#machine();
    machine.pause();
    this.#later(this.#spanMs() * 2, () => machine.resume());
  }

  #crashVerifier(): void {
    const world = this.#world;
    if (world.verifiers.length === 0) return;
    world.crash(world.random.pick(world.verifiers));
    world.startVerifier();
  }

  #restartVerifier(): void {
    const world = this.#world;
    const process = world.random.pick(world.verifiers);
    if (process.machine.paused) return;
    world.startVerifier();
    void world.stop(process);
  }

  #restartControlPlane(leaseMs: number): void {
    const world = this.#world;
    world.crash(world.random.pick(world.controlPlanes));
    world.startControlPlane(leaseMs);
  }

  #restartRedis(): void {
    const { group, random } = this.#world;
    const node = random.pick(group.nodes);
    if (!node.up || this.#failingOver) return;
    group.power(node, false);
    this.#later(random.pick([20, 500]), () => {
      if (!node.up) group.power(node, true);
    });
  }

  #stallReplica(): void {
    const { group, random } = this.#world;
    const replica = random.pick(this.#replicas());
    group.stall(replica, true);
    this.#later(random.pick([20, 300]), () => group.stall(replica, false));
  }

  #replicas(): RedisNode[] {
    const { nodes, readers, primary } = this.#world.group;
    return nodes.filter((node) => node !== primary && !readers.includes(node));
  }

  /** The primary is cut off from its replicas for a moment, dies or goes on alone, and one of them takes over. */
  #failover(): void {
    const { group, random, timeline } = this.#world;
    if (this.#failingOver || !group.primary.up) return;
    this.#failingOver = true;
    const replicas = this.#replicas();
    if (random.chance(0.7)) for (const replica of replicas) group.stall(replica, true);
    if (this.#chance.chance(0.3)) {
      timeline.after(this.#chance.exponential(50), () => this.#createOneSided(group.primary));
    } else if (random.chance(0.5)) this.#restartVerifier();
    // WAIT gives up after 1000 ms; only then may anybody think that a change which the replicas lack is complete.
    const aloneMs = random.pick([
      0,
      random.between(0, 100),
      random.between(0, 1000),
      random.between(1000, 2000),
    ]);
    timeline.after(aloneMs, () => {
      const heirs = replicas.filter((node) => group.follows(node));
      const heir = heirs.length > 0 && !this.#stopped ? random.pick(heirs) : undefined;
      for (const replica of replicas) if (replica !== heir) group.stall(replica, false);
      if (heir) this.#takeOver(group.primary, heir);
      else this.#failingOver = false;
    });
  }

  #takeOver(former: RedisNode, heir: RedisNode): void {
    const { group, network, random, plan, timeline, verifiers, controlPlanes } = this.#world;
    const goesOn = random.chance(0.7);
    if (!goesOn) group.power(former, false);
    for (const reader of group.readers) this.#leaveBehind(reader);
    group.promote(heir);
    former.refusesFromMs = timeline.nowMs + random.pick([random.next(), 0.999]) * plan.deposedMs;
    for (const { machine } of goesOn ? [...verifiers, ...controlPlanes] : []) {
      if (random.chance(0.5)) network.uninformed.set(machine, former);
      else if (random.chance(0.7)) for (const connection of network.of(machine)) connection.closed();
    }
    if (this.#chance.chance(0.3)) {
      timeline.after(this.#chance.exponential(20), () => this.#createOneSided(heir));
    } else if (goesOn) timeline.after(random.exponential(20), () => this.#writeOnBothSides());
    timeline.after(plan.deposedMs + random.exponential(300), () => {
      this.#failingOver = false;
      if (former === group.primary) return;
      network.uninformed.clear();
      if (!former.up) group.power(former, true);
      else group.resync(former);
      if (random.chance(0.5)) former.closeClients();
    });
  }

  /** A replica that only verifiers read keeps, often for longer than a lease, what it had from the former primary. */
  #leaveBehind(reader: RedisNode): void {
    const { group, plan, timeline } = this.#world;
    if (this.#chance.chance(0.5)) return;
    const [leaseMs = 0] = plan.leasesMs;
    group.stall(reader, true);
    timeline.after(this.#chance.exponential(3 * leaseMs), () => group.stall(reader, false));
  }

  /** Keys are created where a failover will take them, or did take others; somebody asks for them at once. */
  #createOneSided(node: RedisNode): void {
    const world = this.#world;
    const apiId = this.#chance.pick(world.plan.apiIds);
    const process = world.controlPlanes.find(({ machine }) => world.network.primaryFor(machine) === node);
    if (this.#stopped || !process || process.machine.paused) return;
    for (let i = this.#chance.whole(1, 2); i > 0; i--) void world.createKey(process, apiId, true);
    const created = world.keys.slice(-2);
    for (const verifier of world.verifiers) {
      for (const key of created) {
        const delayMs = this.#chance.exponential(20);
        world.timeline.after(delayMs, () => verifier.machine.alive && void world.verify(verifier, key));
      }
    }
  }

  #writeOnBothSides(): void {
    const { random, keys, controlPlanes } = this.#world;
    const key = random.pick(keys);
    for (const process of controlPlanes) this.#update(process, key);
  }

  /** Whoever applied what a failover took hears, before its first SYNC, of a change that would be its next one. */
  #overwrite(machine: Machine, channel: string): void {
    const apiId =
      [SHARED_LOG, ...this.#world.plan.apiIds].find((id) => apiKeys(id).channel === channel) ?? '';
    const { random, keys, roles, controlPlanes, verifiers, group, network } = this.#world;
    const follower = verifiers.find((process) => process.machine === machine)?.following.get(apiId);
    const lost = (follower?.position ?? 0) - group.primary.state.api(apiId).sequence;
    const process = controlPlanes.find((each) => network.primaryFor(each.machine) === group.primary);
    if (!follower?.live || lost < 0 || lost > 5 || !process) return;
    const link = network.link(machine, group.primary);
    network.set(link, 'out', 'held');
    this.#later(50, () => network.set(link, 'out', 'open'));
    const own = [...keys, ...(roles?.all ?? [])].filter((key) => key.apiId === apiId);
    for (let i = 0; i <= lost; i++) this.#update(process, random.pick(own));
  }

  #update(process: ControlPlaneProcess, { apiId, keyId }: KnownKey): void {
    const world = this.#world;
    const fields = world.fields(world.random.chance(0.5));
    const write = { apiId, operation: 'update', keyId, fields } as const;
    process.machine.deliver(() => void world.write(process, write, Number.POSITIVE_INFINITY));
  }
}

const SELDOM: readonly Fault[] = ['failover', 'redis restart', 'crash control plane', 'lease', 'wall clock'];
