import type { LogEntry, Write } from '#shared/protocol/log/change-log-port.ts';
import { changeAsRead, inSharedLog } from '#shared/protocol/log/new-log.ts';
import type { RecordParts } from '#shared/protocol/log/new-shared-record.ts';
import { storedFields } from '#shared/protocol/records/key-record.ts';
import {
  namespaceIdOf,
  OVERRIDES_MAX,
  type Override,
  overridesIn,
} from '#shared/protocol/records/namespace-record.ts';
import type { ChangeWriter, Propagation } from '#shared/protocol/writer/writer.ts';
import { indexOf, recordKey, SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { NAMESPACE } from '#shared/rules/key-format.ts';
import type { KeyView } from '../../core/records/key-view.ts';

/** Maximum number of namespaces with overrides. */
const NAMESPACES_MAX = 10_000;

interface OverridesOptions extends RecordParts {
  readonly view: KeyView;
  readonly changeWriter: ChangeWriter;
}

/**
 * The overrides of standalone rate limits: one record of the shared log for each namespace that has any. Its id
 * is derived from the namespace's name, as an identity's id is from its `externalId`. All changes, including the
 * creation of a record, are entries of the shared log.
 */
export class RateLimitOverrides {
  readonly #options: OverridesOptions;

  constructor(options: OverridesOptions) {
    this.#options = options;
  }

  /** The overrides of a namespace, in the order of their creation. */
  async list(namespace: string): Promise<readonly Override[]> {
    const record = await this.#options.view.get(SHARED_LOG, namespaceIdOf(namespace));
    return record ? overridesIn(record.meta) : [];
  }

  /**
   * Replaces the overrides of a namespace by the result of `change`, which may be called more than once.
   * Resolves with the progress of the change; undefined if `change` returned undefined, and nothing was written.
   * Rejects with CONFLICT if there would be too many, or with SERVICE_UNAVAILABLE.
   */
  async change(
    namespace: string,
    change: (before: readonly Override[]) => readonly Override[] | undefined,
    onWritten: (entry: LogEntry) => void,
  ): Promise<Propagation | undefined> {
    const keyId = namespaceIdOf(namespace);
    const read = async (): Promise<Write | undefined> => {
      // In this order: if the record changes in between, its version is no longer the one below.
      const condition = await this.#versionOf(keyId);
      const overrides = change(await this.list(namespace));
      if (overrides === undefined) return undefined;
      if (overrides.length > OVERRIDES_MAX)
        throw new ApiError('CONFLICT', `the namespace has ${OVERRIDES_MAX} overrides already`);
      if (condition === undefined) await this.#checkRoom();
      return writeOf(namespace, condition, overrides);
    };
    const tooFast = 'the overrides of this namespace change faster than they can be written';
    return changeAsRead(read, (write) => this.#apply(write, onWritten), tooFast);
  }

  /** Applies a change; creates the shared log if there is none. */
  async #apply(write: Write, onWritten: (entry: LogEntry) => void): Promise<Propagation | undefined> {
    return inSharedLog(
      this.#options,
      () => this.#options.changeWriter.apply(write, undefined, onWritten),
      (applied) => applied === undefined && write.operation === 'create',
    );
  }

  async #checkRoom(): Promise<void> {
    const index = indexOf(SHARED_LOG, NAMESPACE);
    const namespaces = await this.#options.nodes.run(index, (redis) => redis.zcard(index));
    if (namespaces >= NAMESPACES_MAX)
      throw new ApiError('CONFLICT', `there are ${NAMESPACES_MAX} namespaces with overrides already`);
  }

  async #versionOf(keyId: string): Promise<string | undefined> {
    const record = recordKey(SHARED_LOG, keyId);
    return (await this.#options.nodes.run(record, (redis) => redis.hget(record, 'v'))) ?? undefined;
  }
}

function writeOf(namespace: string, condition: string | undefined, overrides: readonly Override[]): Write {
  const about = { apiId: SHARED_LOG, keyId: namespaceIdOf(namespace) } as const;
  if (condition !== undefined && overrides.length === 0)
    return { ...about, operation: 'delete', fields: {}, condition };
  const meta = { overrides };
  if (condition !== undefined)
    return { ...about, operation: 'update', fields: storedFields({ meta }), condition };
  const fields = storedFields({ name: namespace, enabled: true, meta });
  return { ...about, operation: 'create', fields };
}
