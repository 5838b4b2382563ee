import { type ConfigOf, httpUrl, type Setting, secret, text } from '#shared/process/load-config.ts';
import { type PersonRule, parsePersonRules } from './person.ts';

const rules: Setting<readonly PersonRule[]> = {
  parse: parsePersonRules,
  default: '',
  rule: 'one rule a line: `<claim>=<value>`, then permissions or presets',
  help: 'Permissions of the persons who have a claim with a value, one rule a line, such as `groups=support read-only` or `groups="API admins" api.shop.read_key api.shop.update_key`. Presets: `read-only`, `support`, `ci`, `everything`. A person has the permissions of all rules that match, and cannot sign in if none does',
};

export const oidcSettings = {
  PUBLIC_URL: httpUrl().help(
    'URL at which browsers reach the control plane, such as `https://keyfence.example.com`. Required for OIDC_ISSUER',
  ),
  OIDC_ISSUER: httpUrl().help(
    'Issuer of the OpenID Connect provider at which persons sign in to the dashboard. Unset: the dashboard is open to root keys only',
  ),
  OIDC_CLIENT_ID: text('').help('Id of this client at the provider'),
  OIDC_CLIENT_SECRET: secret('', 'text').help(
    'Secret of this client at the provider; better in OIDC_CLIENT_SECRET_FILE',
  ),
  OIDC_PERMISSIONS: rules,
  OIDC_SCOPE: text('openid profile email').help(
    'Scopes that the sign-in requests, separated by spaces; some providers need one more for groups or for refresh tokens',
  ),
};

/** The settings by which persons sign in, complete. */
export interface OidcOptions {
  readonly issuer: URL;
  readonly publicUrl: URL;
  readonly clientId: string;
  readonly clientSecret: string;
  readonly scope: string;
  readonly rules: readonly PersonRule[];
}

type OidcConfig = ConfigOf<typeof oidcSettings>;

/** Returns the settings by which persons sign in; undefined = they do not. */
export function oidcOptions(config: OidcConfig): OidcOptions | undefined {
  const { OIDC_ISSUER: issuer, PUBLIC_URL: publicUrl } = config;
  if (!issuer || !publicUrl) return undefined;
  return {
    ...{ issuer, publicUrl, clientId: config.OIDC_CLIENT_ID, clientSecret: config.OIDC_CLIENT_SECRET },
    ...{ scope: config.OIDC_SCOPE, rules: config.OIDC_PERMISSIONS },
  };
}

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'];
/** The issuers of Microsoft Entra ID that accept persons of every organisation. */
const ANY_TENANT = /^\/(common|organizations|consumers)\//;

/** Returns the faults of settings that do not fit together. */
export function oidcFaults(config: OidcConfig): string[] {
  const parts = {
    OIDC_ISSUER: config.OIDC_ISSUER !== undefined,
    OIDC_CLIENT_ID: config.OIDC_CLIENT_ID !== '',
    OIDC_CLIENT_SECRET: config.OIDC_CLIENT_SECRET !== '',
    OIDC_PERMISSIONS: config.OIDC_PERMISSIONS.length > 0,
  };
  if (!Object.values(parts).includes(true)) return [];
  const absent = Object.entries({ ...parts, PUBLIC_URL: config.PUBLIC_URL !== undefined })
    .filter(([, isSet]) => !isSet)
    .map(([name]) => `${name}: required, because ${Object.keys(parts).join(', ')} belong together`);
  const plain = (['OIDC_ISSUER', 'PUBLIC_URL'] as const)
    .filter((name) => config[name]?.protocol === 'http:' && !LOOPBACK.includes(config[name].hostname))
    .map((name) => `${name}: must begin with https://, except on this machine`);
  const open =
    config.OIDC_ISSUER?.hostname === 'login.microsoftonline.com' &&
    ANY_TENANT.test(config.OIDC_ISSUER.pathname)
      ? ['OIDC_ISSUER: must name your tenant, because this issuer accepts persons of every organisation']
      : [];
  const scope = config.OIDC_SCOPE.split(' ').includes('openid') ? [] : ['OIDC_SCOPE: must contain openid'];
  return [...absent, ...plain, ...open, ...scope];
}
