import { type ConfigOf, httpUrl, list, secret, text } from '#shared/process/load-config.ts';
import { processLimits, processSettings } from '#shared/process/process-settings.ts';

export const settings = {
  ...processSettings(9302),
  KEYFENCE_URL: httpUrl().help('Address of the control plane'),
  ROOT_KEY: secret(undefined, 'text').help(
    'A root key that may do what the objects declare, and no more; better in ROOT_KEY_FILE, which is read again for each call',
  ),
  NAMESPACES: list(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/, 'names of namespaces, separated by commas').help(
    'Namespaces whose objects count. The operator may read their Secrets',
  ),
  KUBERNETES_URL: text('https://kubernetes.default.svc').help("Address of Kubernetes' API"),
  SERVICE_ACCOUNT: text('/var/run/secrets/kubernetes.io/serviceaccount').help(
    'Folder with `token`, `ca.crt` and `namespace`, with which the operator calls Kubernetes',
  ),
};

/** Limits that suit everybody. Only tests replace them. */
export const limits = {
  ...processLimits,
  /** Time after which everything is listed and compared again, whatever watches told. */
  RELIST_MS: 300_000,
};

export type OperatorConfig = ConfigOf<typeof settings> & typeof limits;

/** Returns the faults of settings that do not fit together. */
export function configFaults({ KEYFENCE_URL, NAMESPACES }: ConfigOf<typeof settings>): string[] {
  return [
    ...(KEYFENCE_URL ? [] : ['KEYFENCE_URL: required (http:// or https:// URL)']),
    ...(NAMESPACES.length > 0 ? [] : ['NAMESPACES: required (names of namespaces, separated by commas)']),
  ];
}
