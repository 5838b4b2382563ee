import { hash, randomBytes } from 'node:crypto';
import type { Admin } from '../client/admin.ts';
import type { Metadata } from './kube.ts';

/** A key that an object of this installation declares. */
export interface OwnKey {
  readonly keyId: string;
  readonly apiId: string;
  /** Unix milliseconds. */
  readonly expires?: number;
  readonly driftedAt?: number;
  readonly sequence: number;
  readonly name?: string;
  readonly createdAt?: number;
  readonly lastUsedAt?: number;
}

const PAGE_SIZE = 100;
const INSTALLATION_BYTES = 6;
const PLACE_LENGTH = 16;
/** `managedBy` of an object: installation, place and uid. */
const OBJECT = /^([0-9a-f]{12})\/([\w-]{16})\/[^/]+$/;

/** Returns a new id of an installation. */
export const newInstallation = (): string => randomBytes(INSTALLATION_BYTES).toString('hex');

/** Returns the name of the place of an object, which it keeps when it is restored. */
const placeOf = (namespace: string, name: string): string =>
  hash('sha256', `${namespace}/${name}`, 'base64url').slice(0, PLACE_LENGTH);

/**
 * Knows which keys the objects of this installation declare, by what Keyfence says of keys and never by what objects say of
 * themselves: users can write that. Reads them once for an API, and again if a call may have made one that it does not know.
 */
export class KeyInventory {
  readonly #admin: Admin;
  readonly #installation: string;
  readonly #apis = new Map<string, Promise<Map<string, Map<string, OwnKey>>>>();

  /** @param installation the id with which `managedBy` of all its keys begins */
  constructor(admin: Admin, installation: string) {
    this.#admin = admin;
    this.#installation = installation;
  }

  /** The beginning of each `managedBy` of this installation. */
  get prefix(): string {
    return `${this.#installation}/`;
  }

  /** The `managedBy` of what an object declares. */
  managedBy({ namespace = '', name, uid }: Pick<Metadata, 'namespace' | 'name' | 'uid'>): string {
    return [this.#installation, placeOf(namespace, name), uid].join('/');
  }

  /** The uid of the object that a `managedBy` names; undefined = none of this installation. */
  uidOf(managedBy: string | undefined): string | undefined {
    return managedBy?.startsWith(this.prefix) ? managedBy.split('/')[2] : undefined;
  }

  /**
   * The installation in which an object of this place had what a `managedBy` declares: after a restore, an object has
   * another uid. undefined = it was no object of this place.
   */
  earlierOf(managedBy: string | undefined, { namespace = '', name }: Metadata): string | undefined {
    const [, installation = '', place] = OBJECT.exec(managedBy ?? '') ?? [];
    return place === placeOf(namespace, name) ? installation : undefined;
  }

  /** Tells whether an installation is this one. */
  isOwn(installation: string): boolean {
    return installation === this.#installation;
  }

  /** The keys of an API that an object declares. */
  async of(apiId: string, uid: string): Promise<OwnKey[]> {
    return [...((await this.#api(apiId)).get(uid)?.values() ?? [])];
  }

  /** The uids of all objects that declare keys of an API. */
  async uids(apiId: string): Promise<string[]> {
    return [...(await this.#api(apiId)).keys()];
  }

  async put(uid: string, key: OwnKey): Promise<void> {
    const api = await this.#api(key.apiId);
    const keys = api.get(uid) ?? new Map<string, OwnKey>();
    keys.set(key.keyId, key);
    api.set(uid, keys);
  }

  async delete(uid: string, { apiId, keyId }: OwnKey): Promise<void> {
    const api = await this.#api(apiId);
    api.get(uid)?.delete(keyId);
    if (api.get(uid)?.size === 0) api.delete(uid);
  }

  /** Reads an API afresh when somebody next asks. */
  forget(apiId: string): void {
    this.#apis.delete(apiId);
  }

  #api(apiId: string): Promise<Map<string, Map<string, OwnKey>>> {
    const present = this.#apis.get(apiId);
    if (present !== undefined) return present;
    const reading = this.#read(apiId);
    this.#apis.set(apiId, reading);
    reading.catch(() => this.#apis.get(apiId) === reading && this.#apis.delete(apiId));
    return reading;
  }

  async #read(apiId: string): Promise<Map<string, Map<string, OwnKey>>> {
    const ofObjects = new Map<string, Map<string, OwnKey>>();
    for (let cursor: string | undefined = ''; cursor !== undefined; ) {
      const page: Awaited<ReturnType<Admin['apis']['listKeys']>> = await this.#admin.apis.listKeys({
        ...{ apiId, limit: PAGE_SIZE, managedByPrefix: this.prefix },
        ...(cursor ? { cursor } : {}),
      });
      for (const key of page.keys) {
        const uid = this.uidOf(key.managedBy);
        if (uid === undefined) continue;
        const keys = ofObjects.get(uid) ?? new Map<string, OwnKey>();
        keys.set(key.keyId, ownKey(key));
        ofObjects.set(uid, keys);
      }
      cursor = page.cursor;
    }
    return ofObjects;
  }
}

/** Returns of a key what the operator remembers. */
export const ownKey = ({ keyId, apiId, sequence, expires, driftedAt, ...more }: OwnKey): OwnKey => ({
  ...{ keyId, apiId, sequence },
  ...(more.name === undefined ? {} : { name: more.name }),
  ...(more.createdAt === undefined ? {} : { createdAt: more.createdAt }),
  ...(more.lastUsedAt === undefined ? {} : { lastUsedAt: more.lastUsedAt }),
  ...(expires === undefined ? {} : { expires }),
  ...(driftedAt === undefined ? {} : { driftedAt }),
});
