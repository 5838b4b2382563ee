import type { Write } from '../../../shared/protocol/log/change-log-port.ts';
import { rootKeyMark } from '../../../shared/protocol/records/root-keys-record.ts';
import { SHARED_LOG } from '../../../shared/redis/redis-keys.ts';
import type { ApiError } from '../../../shared/rules/errors.ts';
import { hashSecret, ROOT_KEYS_ID } from '../../../shared/rules/key-format.ts';
import type { Callers } from '../../../verifier/core/callers.ts';
import type { KnownKey } from './checker.ts';
import { versionOf } from './history.ts';
import type { SimulatedChangeLog } from './ports.ts';
import type { Random } from './random.ts';

const ROOT_KEY = 'root-key-of-a-gateway';
const META = {
  accepted: JSON.stringify({
    rootKeys: { [rootKeyMark(hashSecret(ROOT_KEY))]: { apis: '*', limits: false } },
  }),
  refused: JSON.stringify({ rootKeys: {} }),
};

interface Process {
  readonly log: SimulatedChangeLog;
}

interface World<Asked> {
  readonly random: Random;
  newTag(): string;
  write(process: Asked, write: Write, waitMs: number): Promise<unknown>;
}

/** A root key that verifiers ask for. It is enabled, disabled, and told to verifiers, while they are asked with it. */
export class RootKey<Asked extends Process> {
  /** The record about all root keys; it is `enabled` while the root key is accepted. */
  readonly record: KnownKey = {
    ...{ apiId: SHARED_LOG, keyId: ROOT_KEYS_ID, secret: '', pool: '' },
    ...{ created: versionOf(undefined), createdAtMs: Number.POSITIVE_INFINITY },
  };
  readonly #world: World<Asked>;

  constructor(world: World<Asked>) {
    this.#world = world;
  }

  /** Publishes as published-root-keys.ts does: under the version that was read before. */
  async change(process: Asked): Promise<void> {
    const accepted = this.#world.random.chance(0.5);
    const condition = await process.log
      .run(SHARED_LOG, (state) => state.api(SHARED_LOG).records.get(ROOT_KEYS_ID), 'read')
      .then(
        (record) => (record ? (record['v'] ?? '0') : undefined),
        () => undefined,
      );
    const about = { apiId: SHARED_LOG, keyId: ROOT_KEYS_ID } as const;
    const fields = {
      ...{ e: accepted ? '1' : '0', n: this.#world.newTag() },
      m: accepted ? META.accepted : META.refused,
    };
    const write: Write = condition
      ? { ...about, operation: 'update', fields, condition }
      : { ...about, operation: 'create', fields };
    await this.#world.write(process, write, Number.POSITIVE_INFINITY);
  }

  /** Asks a verifier; calls `answer` with whether it accepted the root key, unless it could not tell. */
  ask(callers: Callers, answer: (accepted: boolean) => void): void {
    callers.admit(`Bearer ${ROOT_KEY}`, 'keys').then(
      () => answer(true),
      ({ code }: ApiError) => (code === 'UNAUTHORIZED' ? answer(false) : undefined),
    );
  }
}
