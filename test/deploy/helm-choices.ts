/** Sets of choices: each value is in at least one. */
export const CHOICES: Record<string, Record<string, unknown>> = {
  'a trial': { 'sample.enabled': true },
  'three Redis with TLS, watched': {
    'redis.mode': 'sentinel',
    'redis.tls.enabled': true,
    'redis.users': ['verifier-billing'],
    'redis.storage': { size: '20Gi', className: 'fast' },
    'redis.priorityClassName': 'system-cluster-critical',
    'monitoring.scrape': true,
    'monitoring.alerts': true,
    'monitoring.dashboard': true,
    'monitoring.labels': { release: 'prometheus' },
    'verifier.namespaces': ['billing', 'shop'],
    commonLabels: { team: 'platform' },
  },
  'a managed Redis Cluster, an Ingress, autoscaling': {
    'redis.mode': 'external',
    'redis.external': { mode: 'cluster', urlSecret: { name: 'managed-redis', key: 'url' } },
    'redis.settings': { REDIS_REPLICAS: 1 },
    'controlPlane.redisUser': { name: 'admins', secretName: 'managed-redis', key: 'password' },
    'controlPlane.autoscaling.enabled': true,
    'controlPlane.ingress': {
      enabled: true,
      className: 'nginx',
      host: 'keys.example.com',
      tlsSecretName: 'keys-tls',
    },
    'controlPlane.settings': { TRUSTED_PROXIES: '10.0.0.0/8', LEASE_MS: 5000, API_AUTO_CREATE: false },
    'networkPolicy.controlPlaneFrom': [
      { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'ingress-nginx' } } },
    ],
    imagePullSecrets: [{ name: 'registry' }],
    image: {
      repository: 'registry.example/keyfence',
      digest: `sha256:${'0'.repeat(64)}`,
      pullPolicy: 'Always',
    },
  },
  'Sentinels elsewhere, a Gateway of its own': {
    'redis.mode': 'external',
    'redis.external': { mode: 'sentinel', url: 'rediss://a:26379,rediss://b:26379', sentinelPassword: true },
    'redis.tls.enabled': true,
    'controlPlane.gateway': {
      enabled: true,
      className: 'istio',
      host: 'keys.example.com',
      tlsSecretName: 'keys-tls',
    },
    'networkPolicy.enabled': false,
  },
  'a Gateway that is there': {
    'controlPlane.gateway': {
      enabled: true,
      host: 'keys.example.com',
      parentRefs: [{ name: 'shared', namespace: 'gateways', sectionName: 'https' }],
    },
  },
  'verifiers alone': {
    'controlPlane.enabled': false,
    'redis.mode': 'external',
    'redis.external.url': 'redis://keyfence-redis.keyfence:6379',
    'verifier.node.enabled': true,
    'verifier.node.maxUnavailable': '10%',
    'verifier.injection.enabled': true,
    'verifier.settings': { CACHE_KEYS_MAX: 1000 },
  },
};
