import type { Operations } from '../client/interface.ts';
import type { KubeObject, Resource } from './kube.ts';

export const GROUP = 'keyfence.io';
export const VERSION = 'v1alpha1';
/** Keeps an object until its deletion is complete. */
export const FINALIZER = 'keyfence.io/fence';
/** The label of Secrets that the operator may read. */
export const SECRET_LABEL = 'keyfence.io/secret';
/** The annotation with the SHA-256 of a secret that the operator made. */
export const DIGEST = 'keyfence.io/sha256';
/** The annotation that, with `orphan`, leaves what an object declares in Keyfence when the object is deleted. */
export const ON_DELETE = 'keyfence.io/on-delete';

/** The annotation of a KeyApi with which its objects go without a call, where Keyfence is gone for good. */
export const FORGET = 'keyfence.io/forget';

/** The annotation of a KeyApi with the token that lets the objects that wait be deleted. */
export const CONFIRM = 'keyfence.io/confirm';
/** The annotation of a KeyApi with the number of keys that go with the API. */
export const DELETE_ALL = 'keyfence.io/delete-all-keys';

/** The ConfigMap that has the id of this installation. */
export const INSTALLATION = 'keyfence-operator';

/** The field of a Secret that has the key. */
export const SECRET_FIELD = 'key';

export type Condition = {
  readonly type: string;
  readonly status: 'True' | 'False' | 'Unknown';
  readonly reason: string;
  readonly message: string;
  readonly observedGeneration?: number;
  readonly lastTransitionTime: string;
};

export interface Status {
  readonly observedGeneration?: number;
  readonly conditions?: readonly Condition[];
}

type Update = Operations['keys.updateKey']['input'];

/** The fields of a key that an ApiKey declares. What it leaves out, the key does not have. */
export const KEY_SPEC = [
  ...['name', 'meta', 'externalId', 'environment', 'ratelimit', 'ratelimits', 'permissions', 'roles'],
  ...['allowedIps', 'allowedOrigins', 'concurrency'],
] as const satisfies readonly (keyof Update)[] as readonly (keyof Update)[];

/** The fields of an API that a KeyApi declares. */
export const API_SPEC = [
  ...['defaultPrefix', 'defaultBytes', 'defaultLifetimeMs', 'maxLifetimeMs', 'disableUnusedAfterMs'],
] as const;

/** The fields of a role that a KeyRole declares, and of an identity that a KeyIdentity does. */
export const ROLE_SPEC = ['description', 'permissions', 'ratelimits', 'concurrency'] as const;
export const IDENTITY_SPEC = ['meta', 'ratelimits', 'concurrency', 'roles'] as const;

export interface ApiKey extends KubeObject {
  readonly spec: {
    readonly api: string;
    /** The Secret that the operator makes; by default, of the object's name. */
    readonly secretName?: string;
    /** Instead: Secrets of the user's own. */
    readonly secretRefs?: readonly { readonly name: string; readonly key?: string }[];
    readonly graceSeconds?: number;
    readonly expires?: string;
    readonly enabled?: boolean;
    readonly prefix?: string;
    readonly byteLength?: number;
  } & Readonly<Record<string, unknown>>;
  readonly status?: Status & { readonly keyId?: string; readonly retired?: readonly string[] };
}

export interface KeyApi extends KubeObject {
  readonly spec: {
    readonly apiId?: string;
    readonly name?: string;
    /** Other installations whose keys its objects may take over. */
    readonly takeFrom?: readonly string[];
    readonly allowedNamespaces?: { readonly matchLabels?: Readonly<Record<string, string>> };
  } & Readonly<Record<string, unknown>>;
  readonly status?: Status & {
    /** Deletions of objects since then, and the number of objects at the first of them. */
    readonly deletions?: { readonly since?: string; readonly objects?: number; readonly count?: number };
  };
}

export interface KeyRole extends KubeObject {
  readonly spec: { readonly name?: string } & Readonly<Record<string, unknown>>;
  readonly status?: Status & { readonly sequence?: number };
}

export interface KeyIdentity extends KubeObject {
  readonly spec: {
    readonly externalId?: string;
    /** The APIs in which the identity applies. */
    readonly apiIds: readonly string[];
    readonly enabled?: boolean;
  } & Readonly<Record<string, unknown>>;
  readonly status?: Status & { readonly sequence?: number };
}

export interface ConfigMap extends KubeObject {
  readonly data?: Readonly<Record<string, string>>;
}

export interface Secret extends KubeObject {
  readonly data?: Readonly<Record<string, string>>;
}

const keyfence = { group: `apis/${GROUP}/${VERSION}` };
export const keyApis: Resource = { ...keyfence, plural: 'keyapis' };
export const namespaces: Resource = { group: 'api/v1', plural: 'namespaces' };
export const apiKeysIn = (namespace: string): Resource => ({ ...keyfence, plural: 'apikeys', namespace });
export const keyRolesIn = (namespace: string): Resource => ({ ...keyfence, plural: 'keyroles', namespace });
export const keyIdentitiesIn = (namespace: string): Resource => ({
  ...{ ...keyfence, plural: 'keyidentities', namespace },
});
export const secretsIn = (namespace: string): Resource => ({ group: 'api/v1', plural: 'secrets', namespace });
export const configMapsIn = (namespace: string): Resource => ({
  ...{ group: 'api/v1', plural: 'configmaps', namespace },
});
/** The definitions of kinds. */
export const definitions: Resource = {
  ...{ group: 'apis/apiextensions.k8s.io/v1', plural: 'customresourcedefinitions' },
};
export const eventsIn = (namespace: string): Resource => ({ group: 'api/v1', plural: 'events', namespace });

/** The kinds of Keyfence, by the names of their resources. */
export const KINDS: Readonly<Record<string, string>> = {
  ...{ apikeys: 'ApiKey', keyapis: 'KeyApi', keyroles: 'KeyRole', keyidentities: 'KeyIdentity' },
};

export const apiIdOf = ({ spec, metadata }: KeyApi): string => spec.apiId ?? metadata.name;
