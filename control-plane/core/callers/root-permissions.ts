import { API_ID_PATTERN } from '#shared/rules/slugs.ts';

/** Actions that can be permitted on one API, or on all. */
export const API_ACTIONS = [
  'create_key',
  'read_key',
  'update_key',
  'delete_key',
  'read_analytics',
  'read_api',
  'create_api',
  'update_api',
  'delete_api',
  'verify_key',
  'explain_key',
] as const;
/** Actions on anything that belongs to no API. */
export const ROOT_ACTIONS = [
  'create_root_key',
  'read_root_key',
  'update_root_key',
  'delete_root_key',
  'create_role',
  'read_role',
  'update_role',
  'delete_role',
  'create_permission',
  'read_permission',
  'update_permission',
  'delete_permission',
  'create_identity',
  'read_identity',
  'update_identity',
  'delete_identity',
  'set_override',
  'read_override',
  'delete_override',
  'check_rate_limit',
  'read_fleet',
  'accept_history',
  'read_audit',
  'create_webhook',
  'read_webhook',
  'update_webhook',
  'delete_webhook',
] as const;

/** An action on an API and its keys. */
export type ApiAction = (typeof API_ACTIONS)[number];
/** An action on root keys, roles, and everything else that belongs to no API. */
export type RootAction = (typeof ROOT_ACTIONS)[number];

const isReading = (action: string) => action.startsWith('read_');
const READS = [
  ...API_ACTIONS.filter(isReading).map((action) => `api.*.${action}`),
  ...ROOT_ACTIONS.filter(isReading).map((action) => `root.*.${action}`),
];

/** Sets of permissions for usual tasks, by the names that OIDC_PERMISSIONS uses. */
export const PRESETS: Readonly<
  Record<string, { readonly text: string; readonly permissions: readonly string[] }>
> = {
  'read-only': { text: 'read everything, and explain keys', permissions: [...READS, 'api.*.explain_key'] },
  support: {
    text: 'support customers: read, and change and explain keys',
    permissions: [...READS, 'api.*.explain_key', 'api.*.update_key'],
  },
  ci: {
    text: 'manage keys, as CI does',
    permissions: ['create_key', 'read_key', 'update_key', 'delete_key', 'read_api'].map(
      (action) => `api.*.${action}`,
    ),
  },
  everything: { text: 'do everything', permissions: ['*'] },
};

/** The form of a permission: `*`, `api.<apiId|*>.<action>` or `root.*.<action>`. */
export const PERMISSION_PATTERN = `^(\\*|api\\.(\\*|${API_ID_PATTERN})\\.(${API_ACTIONS.join('|')})|root\\.\\*\\.(${ROOT_ACTIONS.join('|')}))$`;

/** The permissions of a root key. */
export class Permissions {
  readonly #slugs: ReadonlySet<string>;

  constructor(granted: Iterable<string>) {
    this.#slugs = new Set(granted);
  }

  /** All of them, as they were granted. */
  get granted(): readonly string[] {
    return [...this.#slugs];
  }

  /** Tells whether `action` is allowed on this API, or on all APIs if `apiId` is `*`. */
  allows(apiId: string, action: ApiAction): boolean {
    return this.#has('*') || this.#has(`api.*.${action}`) || this.#has(`api.${apiId}.${action}`);
  }

  /** Tells whether any action is allowed on this API, so that the caller may know that the API exists. */
  touches(apiId: string): boolean {
    return API_ACTIONS.some((action) => this.allows(apiId, action));
  }

  /** The ids of the APIs on which `action` is allowed, sorted; undefined = all APIs. */
  apisWith(action: ApiAction): string[] | undefined {
    if (this.allows('*', action)) return undefined;
    const names = [...this.#slugs].map((permission) => permission.split('.'));
    return names.flatMap(([, apiId = '', granted]) => (granted === action ? [apiId] : [])).sort();
  }

  /** Tells whether the caller may know of every API. */
  touchesAll(): boolean {
    return this.touches('*');
  }

  allowsRoot(action: RootAction): boolean {
    return this.#has('*') || this.#has(`root.*.${action}`);
  }

  /** Tells whether all `others` are allowed: callers can grant only permissions that they have. */
  covers(others: Iterable<string>): boolean {
    return [...others].every((permission) => {
      if (this.#has('*') || this.#has(permission)) return true;
      const [service, , action] = permission.split('.');
      return service === 'api' && this.#has(`api.*.${action}`);
    });
  }

  #has(permission: string): boolean {
    return this.#slugs.has(permission);
  }
}
