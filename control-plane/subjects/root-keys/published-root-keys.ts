import { pause } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import type { Write } from '#shared/protocol/log/change-log-port.ts';
import { changeAsRead, inSharedLog } from '#shared/protocol/log/new-log.ts';
import type { RecordParts } from '#shared/protocol/log/new-shared-record.ts';
import { storedFields } from '#shared/protocol/records/key-record.ts';
import {
  type RootKeyScope,
  rootKeyMark,
  type StoredScopes,
  scopesIn,
} from '#shared/protocol/records/root-keys-record.ts';
import type { ChangeWriter, Propagation } from '#shared/protocol/writer/writer.ts';
import { recordKey, SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { ROOT_KEYS_ID } from '#shared/rules/key-format.ts';
import type { BootstrapKeys, BootstrapWatch } from '../../core/callers/bootstrap-keys.ts';
import type { RootKeys } from '../../core/callers/root-keys.ts';
import { Permissions } from '../../core/callers/root-permissions.ts';
import type { KeyView } from '../../core/records/key-view.ts';

const PERIOD_MS = 30_000;

interface PublicationOptions extends Omit<RecordParts, 'log'> {
  readonly view: KeyView;
  readonly changeWriter: ChangeWriter;
  readonly rootKeys: Pick<RootKeys, 'effective'>;
  readonly bootstrapKeys: Pick<BootstrapKeys, 'all'>;
  readonly bootstrapWatch: Pick<BootstrapWatch, 'exchange'>;
  readonly logger: Pick<Logger, 'debug'>;
}

/**
 * The publication of root keys to verifiers: one record of the shared log with everything that their holders may ask.
 * The root keys themselves decide what it must say. So each publication reads them after the record's version, and
 * writes only if the record still has that version: the latest publication is never older than any change before it.
 */
export class PublishedRootKeys {
  readonly #options: PublicationOptions;
  readonly #stop = new AbortController();
  /** The publication that has not begun to read. */
  #next: Promise<Publication> | undefined;
  #present: Promise<unknown> = Promise.resolve();

  constructor(options: PublicationOptions) {
    this.#options = options;
  }

  /**
   * Publishes all changes of root keys that were made before this call. Resolves when that is complete, or with
   * `pending`, as `updateKey` does. Rejects with SERVICE_UNAVAILABLE.
   */
  async publish(): Promise<Propagation> {
    // A publication that has begun may have read the root keys before the caller's change.
    this.#next ??= this.#present.then(() => {
      this.#next = undefined;
      const publication = this.#write();
      this.#present = publication.catch(() => undefined);
      return publication;
    });
    return (await this.#next).propagation;
  }

  /** Publishes whatever verifiers should know and do not, until `stop`; never rejects. */
  async run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        if (!(await this.#read()).isPublished) await this.publish();
      } catch (error) {
        this.#options.logger.debug({ err: error }, 'cannot publish root keys to verifiers');
      }
      await pause(this.#options.clock, PERIOD_MS, this.#stop.signal);
    }
  }

  stop(): void {
    this.#stop.abort();
  }

  /** Resolves when it is written. */
  async #write(): Promise<Publication> {
    const read = async () => {
      const { condition, meta } = await this.#read();
      return writeOf(condition, meta);
    };
    const tooFast = 'root keys change faster than they can be published to verifiers';
    return changeAsRead(read, (write) => this.#apply(write), tooFast);
  }

  /** Reads the record's version, and then what it should say. */
  async #read() {
    const { nodes, view, rootKeys, bootstrapKeys } = this.#options;
    const record = recordKey(SHARED_LOG, ROOT_KEYS_ID);
    const condition = (await nodes.run(record, (redis) => redis.hget(record, 'v'))) ?? undefined;
    const present = scopesIn((await view.get(SHARED_LOG, ROOT_KEYS_ID))?.meta ?? {});
    const scopes = new Map(await this.#ofOtherConfigurations(present));
    for (const { id, secretHash } of bootstrapKeys.all)
      scopes.set(rootKeyMark(secretHash), { apis: '*', limits: true, bootstrap: id });
    for (const { secretHash, permissions } of await rootKeys.effective())
      scopes.set(rootKeyMark(secretHash), scopeOf(permissions));
    const sorted = Object.fromEntries([...scopes].sort(([a], [b]) => (a < b ? -1 : 1)));
    const isPublished = condition !== undefined && JSON.stringify(present) === JSON.stringify(sorted);
    return { condition, meta: { rootKeys: sorted }, isPublished };
  }

  /** The scopes of root keys that other control planes have in their configurations, as these published them. */
  async #ofOtherConfigurations(present: StoredScopes): Promise<[string, StoredScopes[string]][]> {
    // A full Redis takes no announcements, but a root key can be disabled all the same.
    const others = await this.#options.bootstrapWatch.exchange().catch(() => undefined);
    const ids = new Set(others?.flatMap((together) => together.split(',')));
    return Object.entries(present).filter(
      ([, { bootstrap }]) => bootstrap !== undefined && (others === undefined || ids.has(bootstrap)),
    );
  }

  /** Resolves when it is written; rejects with CONFLICT if the record has changed. */
  #apply(write: Write): Promise<Publication> {
    const { changeWriter } = this.#options;
    return new Promise((resolve, reject) => {
      const apply = async (): Promise<Propagation> => {
        const applied = await inSharedLog(
          this.#options,
          () => changeWriter.apply(write, undefined, () => resolve({ propagation })),
          (outcome) => outcome === undefined,
        );
        if (applied) return applied;
        throw new ApiError('CONFLICT', 'the record has gone');
      };
      const propagation = apply();
      propagation.catch(reject);
    });
  }
}

/** A publication that is written; its progress. */
interface Publication {
  readonly propagation: Promise<Propagation>;
}

function scopeOf(permissions: readonly string[]): RootKeyScope {
  const granted = new Permissions(permissions);
  return {
    apis: granted.apisWith('verify_key') ?? '*',
    limits: granted.allowsRoot('check_rate_limit'),
  };
}

function writeOf(condition: string | undefined, meta: object): Write {
  const about = { apiId: SHARED_LOG, keyId: ROOT_KEYS_ID } as const;
  return condition === undefined
    ? { ...about, operation: 'create', fields: storedFields({ enabled: true, meta }) }
    : { ...about, operation: 'update', fields: storedFields({ meta }), condition };
}
