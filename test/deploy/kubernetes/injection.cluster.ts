import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RELEASES } from '../../../deploy/dev/go-tools.ts';
import { podOf, workloadsOf } from '../kubernetes-rules.ts';
import { KUBERNETES, type Manifest } from '../kustomize.ts';
import { Cluster } from './cluster.ts';

const LABEL = { 'keyfence/verifier': 'sidecar' };
describe('injection by deploy/kubernetes/injection', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start(RELEASES[0]);
    cluster.makeNamespace('apis', 'restricted', { 'keyfence/injection': 'enabled' });
    cluster.makeNamespace('others', 'restricted');
    cluster.makeNamespace('keyfence', 'restricted');
    cluster.kubectl('apply', '-k', join(KUBERNETES, 'injection'));
    // An API server takes up a policy some time after it is made.
    await cluster.until(
      () => names(create(podCalled('probe'), '--dry-run=server')).length > 0,
      'the policy holds',
    );
  });
  afterAll(() => cluster?.stop());

  /** Makes an object and returns it as the cluster has it. */
  const create = (object: object, ...args: string[]): Manifest =>
    JSON.parse(cluster.kubectlWith(JSON.stringify(object), 'create', '-f', '-', '-o', 'json', ...args));

  it('puts into a pod what the component puts into it, and nothing else', () => {
    const made = create(podCalled('bare'));
    const [workload] = workloadsOf(cluster.objects('kustomize', join(KUBERNETES, 'example/sidecar')));
    const { initContainers, volumes } = podOf(workload as Manifest);
    // Kustomize gives the ConfigMap that it makes another name.
    initContainers[0].envFrom = [{ configMapRef: { name: 'keyfence-verifier' } }];
    const own = volumes.filter(({ name }: { name: string }) => name === 'keyfence-verifier');
    const written = podCalled('written', { initContainers, volumes: own }, 'others');
    expect(essence(made)).toEqual(essence(create(written)));
    expect(names(made)).toEqual(['keyfence-verifier']);
  });

  it('puts it before the init containers that are there, and beside their volumes', () => {
    const migrate = { ...CONTAINER, name: 'migrate' };
    const volumes = [{ name: 'data', emptyDir: {} }];
    const made = create(podCalled('busy', { initContainers: [migrate], volumes }));
    expect(names(made)).toEqual(['keyfence-verifier', 'migrate']);
    expect(made['spec'].volumes.map(({ name }: { name: string }) => name)).toEqual(
      expect.arrayContaining(['data', 'keyfence-verifier']),
    );
  });

  it('leaves alone a pod that has one, a pod without the label, and other namespaces', () => {
    const verifier = { ...CONTAINER, name: 'keyfence-verifier', image: 'mine:1.0.0' };
    const made = create(podCalled('has-one', { initContainers: [verifier] }));
    expect(made['spec'].initContainers.map(({ image }: { image: string }) => image)).toEqual(['mine:1.0.0']);
    const pod = podCalled('unlabelled');
    expect(names(create({ ...pod, metadata: { ...pod.metadata, labels: {} } }))).toEqual([]);
    expect(names(create(podCalled('elsewhere', {}, 'others')))).toEqual([]);
  });

  it('reaches the pods that a Deployment and a Job make, under the Pod Security level restricted', async () => {
    const { metadata, spec } = podCalled('made');
    const template = { metadata: { labels: metadata.labels }, spec };
    const head = { metadata: { name: 'made', namespace: 'apis' } };
    create({
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      ...head,
      spec: { replicas: 2, selector: { matchLabels: LABEL }, template },
    });
    const job = { ...template, spec: { ...spec, restartPolicy: 'Never' } };
    create({ apiVersion: 'batch/v1', kind: 'Job', ...head, spec: { template: job } });
    const made = () =>
      cluster
        .objects('get', 'pods', '-n', 'apis', '-o', 'yaml')
        .flatMap(({ items }) => items as Manifest[])
        .filter((pod) => pod.metadata.name.startsWith('made-'));
    await cluster.until(() => made().length === 3, 'the controllers have made three pods');
    for (const pod of made()) expect(names(pod)).toEqual(['keyfence-verifier']);
  });
});

const CONTAINER = {
  name: 'api',
  image: 'x:1.0.0',
  securityContext: {
    runAsNonRoot: true,
    allowPrivilegeEscalation: false,
    capabilities: { drop: ['ALL'] },
    seccompProfile: { type: 'RuntimeDefault' },
  },
};

const podCalled = (name: string, spec: object = {}, namespace = 'apis') => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, namespace, labels: LABEL },
  spec: { containers: [CONTAINER], automountServiceAccountToken: false, ...spec },
});

const names = (pod: Manifest): string[] =>
  (pod['spec'].initContainers ?? []).map(({ name }: { name: string }) => name);

/** Containers and volumes of a pod, with the server's defaults. */
const essence = ({ spec: { initContainers, containers, volumes } }: Manifest) => ({
  initContainers,
  containers,
  volumes,
});
