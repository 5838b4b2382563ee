/** Kinds that are not Kubernetes' own, and those who bring them. What is in them is checked by their schemas elsewhere. */
const KINDS = {
  'monitoring.coreos.com': ['ServiceMonitor', 'PodMonitor', 'PrometheusRule'],
  'gateway.networking.k8s.io': ['Gateway', 'HTTPRoute'],
  'cert-manager.io': ['Certificate', 'Issuer'],
  'external-secrets.io': ['ExternalSecret', 'SecretStore'],
  'snapshot.storage.k8s.io': ['VolumeSnapshot'],
  'argoproj.io': ['Rollout'],
} as const;

/** Definitions of all of them, with any fields, as kubectl takes them. */
export const definitions = {
  apiVersion: 'v1',
  kind: 'List',
  items: Object.entries(KINDS).flatMap(([group, kinds]) => kinds.map((kind) => definitionOf(group, kind))),
};

function definitionOf(group: string, kind: string): object {
  const singular = kind.toLowerCase();
  const plural = singular.endsWith('y') ? `${singular.slice(0, -1)}ies` : `${singular}s`;
  const schema = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
  const annotations = group.endsWith('k8s.io')
    ? { 'api-approved.kubernetes.io': 'unapproved, for tests of this machine' }
    : {};
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.${group}`, annotations },
    spec: {
      group,
      scope: 'Namespaced',
      names: { kind, plural, singular },
      versions: [
        {
          name: group === 'argoproj.io' ? 'v1alpha1' : 'v1',
          served: true,
          storage: true,
          schema: { openAPIV3Schema: schema },
        },
      ],
    },
  };
}
