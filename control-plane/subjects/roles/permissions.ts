import { createRecord, type RecordParts, recordOf } from '#shared/protocol/log/new-shared-record.ts';
import { indexOf, SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { type Key, type KeyView, type Managed, managedIn } from '../../core/records/key-view.ts';

/** The maximum number of permissions in the catalogue, so that one response can list them. */
export const PERMISSIONS_MAX = 1000;
const INDEX = indexOf(SHARED_LOG, 'permission_');

/** A permission of the catalogue, as people see it. */
export interface CataloguedPermission extends Managed {
  /** The permission itself, as keys and roles have it. */
  readonly slug: string;
  readonly name: string;
  readonly description?: string;
  /** The sequence of its last change; 0 = never changed. */
  readonly sequence: number;
}

/** A permission to be added. */
export type NewPermission = Pick<CataloguedPermission, 'slug' | 'name' | 'description' | 'managedBy'>;

interface CatalogueOptions extends RecordParts {
  readonly view: KeyView;
}

/**
 * The catalogue of permissions in Redis: names and descriptions for people; no verdict depends on it. Its
 * entries are records of the shared log, like roles.
 */
export class Catalogue {
  readonly #options: CatalogueOptions;

  constructor(options: CatalogueOptions) {
    this.#options = options;
  }

  /** Creates a permission. Rejects with CONFLICT if the slug exists, or with SERVICE_UNAVAILABLE. */
  async create({ slug, name, description, ...managed }: NewPermission): Promise<void> {
    const conflict = () => new ApiError('CONFLICT', `slug: there is a permission ${slug} already`);
    const fields = { name, enabled: true, meta: metaOf(slug, description), ...managed };
    const nouns = { singular: 'the permission', plural: 'permissions' };
    const room = { index: INDEX, max: PERMISSIONS_MAX };
    const record = { kind: 'permission', uniqueName: uniqueNameOf(slug), fields, nouns, room } as const;
    await createRecord(this.#options, record, conflict);
  }

  /** The id of a permission's record; undefined if the permission is not in the catalogue. */
  idOf(slug: string): Promise<string | undefined> {
    return recordOf(this.#options.nodes, uniqueNameOf(slug));
  }

  async get(slug: string): Promise<CataloguedPermission | undefined> {
    const id = await this.idOf(slug);
    const record = id && (await this.#options.view.get(SHARED_LOG, id));
    return record ? permissionOf(record) : undefined;
  }

  /** Lists all permissions in order of creation. */
  async list(filter: Pick<Managed, 'managedBy'> = {}): Promise<CataloguedPermission[]> {
    const page = await this.#options.view.list(SHARED_LOG, filter, PERMISSIONS_MAX, 'asc', undefined, INDEX);
    return page?.keys.map(permissionOf) ?? [];
  }
}

/** Returns the name of a permission in the index of external ids. No role and no identity can have this name. */
const uniqueNameOf = (slug: string): string => `#${slug}`;

/** Returns the meta of a permission's record. */
export const metaOf = (slug: string, description: string | undefined) => ({
  slug,
  ...(description ? { description } : {}),
});

function permissionOf({ name = '', meta, sequence, ...key }: Key): CataloguedPermission {
  const { slug = name, description } = meta as { slug?: string; description?: string };
  return { slug, name, ...(description ? { description } : {}), sequence, ...managedIn(key) };
}
