import { type Admin, createAdmin } from '../../../../control-plane/clients/client/admin.ts';
import type { Kube } from '../../../../control-plane/clients/operator/kube.ts';
import { Operator } from '../../../../control-plane/clients/operator/operator.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { type Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { FakeKube } from './fake-kube.ts';
import { IdleClock } from './idle-clock.ts';

export const RELIST_MS = 300_000;
let worlds = 0;

/** A cluster of its own, with an API of its own in a real Keyfence, and operators between them that may end at any call. */
export class World {
  readonly clock = new IdleClock();
  kube = new FakeKube();
  readonly fleet: Fleet;
  readonly apiId = `shop${++worlds}`;
  readonly operators: Operator[] = [];
  /** Calls until the operator is killed: before the call is made, or before its answer comes. */
  killAt = Number.POSITIVE_INFINITY;
  calls = 0;
  /** Operations of Keyfence that were called. */
  readonly operations: string[] = [];
  rootKey = ROOT_KEY;

  constructor(fleet: Fleet) {
    this.fleet = fleet;
    this.fill(this.kube);
  }

  /** Makes what each cluster has. */
  fill(kube: FakeKube, uid?: string): void {
    kube.uidPrefix = uid ?? `${worlds}`;
    kube.put('namespaces', { metadata: { name: 'kube-system', uid: `cluster-${uid ?? worlds}` } });
    kube.put('namespaces', { metadata: { name: 'shop', labels: { team: 'shop' } } });
    kube.put('namespaces', { metadata: { name: 'other', labels: { team: 'shop' } } });
    kube.put('keyapis', {
      metadata: { name: this.apiId },
      spec: { allowedNamespaces: { matchLabels: { team: 'shop' } } },
    });
  }

  start(kube = this.kube): Operator {
    let isDead = false;
    const mortal = <T extends object>(of: T, path: string): T =>
      new Proxy(of, {
        get: (target, name) => {
          const value = Reflect.get(target, name);
          if (typeof value === 'object' && value !== null) return mortal(value, `${path}${String(name)}.`);
          if (typeof value !== 'function') return value;
          if (name === 'watch') return value.bind(target);
          return async (...args: unknown[]) => {
            const at = this.calls++;
            const die = () => {
              isDead = true;
              operator.stop();
              return new Promise(() => undefined);
            };
            if (isDead || at === this.killAt) return die();
            this.operations.push(`${path}${String(name)}`);
            const answer = await this.clock.during(value.apply(target, args));
            return isDead || at + 0.5 === this.killAt ? die() : answer;
          };
        },
      });
    const url = this.fleet.controlPlanes[0]?.address ?? '';
    const operator: Operator = new Operator({
      kube: mortal<Kube>(kube, 'kube.'),
      admin: mortal<Admin>(createAdmin({ url, rootKey: () => this.rootKey }), ''),
      ...{
        clock: this.clock,
        home: 'keyfence',
        namespaces: ['shop', 'other'],
        relistMs: RELIST_MS,
        chance: () => 0.5,
      },
      log: createLogger('control-plane', (process.env['OPLOG'] ?? 'silent') as 'silent'),
    });
    this.operators.push(operator);
    void operator.run();
    return operator;
  }

  stop(): void {
    for (const operator of this.operators) operator.stop();
  }

  key(name: string, spec: object = {}, namespace = 'shop') {
    return this.kube.put('apikeys', { metadata: { name, namespace }, spec: { api: this.apiId, ...spec } });
  }

  read = (name: string, namespace = 'shop') => this.kube.read('apikeys', namespace, name);

  /** A condition of an object, by default an ApiKey. */
  condition(
    name: string,
    type = 'Ready',
    plural = 'apikeys',
    namespace = plural === 'keyapis' ? '' : 'shop',
  ) {
    const { conditions = [] } = this.kube.read(plural, namespace, name)?.status ?? {};
    return conditions.find((condition: { type: string }) => condition.type === type) ?? {};
  }

  isReady = (name: string) => this.condition(name).status === 'True';

  /** Makes ApiKeys, and waits until they are ready. */
  async made(...names: string[]): Promise<void> {
    for (const name of names) this.key(name);
    await this.clock.until(() => names.every(this.isReady), 60_000);
  }

  secret = (name: string): string => {
    const data = this.kube.read('secrets', 'shop', name)?.data?.key ?? '';
    return Buffer.from(data, 'base64').toString();
  };

  putSecret(name: string, key: string): void {
    const data = { key: Buffer.from(key).toString('base64') };
    const metadata = { name, namespace: 'shop', labels: { 'keyfence.io/secret': 'true' } };
    this.kube.put('secrets', { metadata, data });
  }

  /** Takes the finalizers off an object, and deletes it, as those do who are tired of waiting. */
  strip(plural: string, name: string, namespace = 'shop'): void {
    const object = this.kube.read(plural, namespace, name);
    this.kube.put(plural, { ...object, metadata: { ...object.metadata, finalizers: [] } });
    this.kube.remove(plural, namespace, name);
  }

  /** All keys of the API. */
  async keys(): Promise<Record<string, unknown>[]> {
    const keys: Record<string, unknown>[] = [];
    for (let cursor: string | undefined; ; ) {
      const page = await this.fleet.ok('apis.listKeys', { apiId: this.apiId, ...(cursor && { cursor }) });
      keys.push(...page.keys);
      cursor = page.cursor;
      if (!cursor) return keys;
    }
  }

  /** The verdict about a secret. */
  code = async (secret: string): Promise<string> => (await this.fleet.verify(secret)).body.code;
}
