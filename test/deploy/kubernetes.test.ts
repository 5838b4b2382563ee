import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { lacking } from '../harness/programs.ts';
import {
  type Container,
  faultsOf,
  podOf,
  ruleFaults,
  securityFaults,
  workloadsOf,
} from './kubernetes-rules.ts';
import { schemaFaults } from './kubernetes-schema.ts';
import { KUBERNETES, kustomize, type Manifest, manifestsIn, render } from './kustomize.ts';

const folders = globSync('**/kustomization.yaml', { cwd: KUBERNETES })
  .map((file) => ({ folder: dirname(file), ...parse(readFileSync(join(KUBERNETES, file), 'utf8')) }))
  .filter(({ kind }) => kind === 'Kustomization')
  .sort((a, b) => a.folder.localeCompare(b.folder));
/** The objects of each folder that consists of files alone; the others take theirs from such a one. */
const installations: Record<string, Manifest[]> = Object.fromEntries(
  folders
    .filter(({ resources }) => resources.every((name: string) => name.endsWith('.yaml')))
    .map(({ folder, resources }): [string, Manifest[]] => [
      folder,
      resources.flatMap((name: string) => manifestsIn(join(folder, name))),
    ]),
);
const { 'overlays/dev': dev = [], 'overlays/production': production = [] } = installations;
const named = (all: readonly Manifest[], kind: string, name: string) =>
  all.find((each) => each.kind === kind && each.metadata.name === name);
/** ConfigMaps that each needs from outside: see deploy/kubernetes/README.md. */
const EXTERNAL = ['keyfence-verifier'];

it('no install lets a misspelt apiId make an API', () => {
  const textOf = (file: string) => readFileSync(join(KUBERNETES, '..', file), 'utf8');
  for (const all of [dev, production]) {
    const [container] = podOf(named(all, 'Deployment', 'keyfence-control-plane') as Manifest).containers;
    expect(container.env).toContainEqual({ name: 'API_AUTO_CREATE', value: 'false' });
  }
  const unit = textOf('systemd/keyfence-control-plane.service');
  expect(unit).toMatch(/^Environment=API_AUTO_CREATE=false$/m);
  // The administrator's file comes after it, and wins.
  expect(unit.indexOf('API_AUTO_CREATE')).toBeLessThan(unit.indexOf('EnvironmentFile='));
});

it('no manifest has anchors, which patches lose', () => {
  const anchored = globSync('**/*.yaml', { cwd: KUBERNETES }).filter((file) =>
    /(: |- |\[)[&*]\w|<<:/.test(readFileSync(join(KUBERNETES, file), 'utf8')),
  );
  expect(anchored).toEqual([]);
});

describe('the manifests of deploy/kubernetes', () => {
  it.each(Object.entries(installations))('%s: is restricted, and Kubernetes accepts it', (_, all) => {
    expect(all.length).toBeGreaterThan(0);
    expect(faultsOf(all, EXTERNAL)).toEqual([]);
  });

  it('the pod that reads backups mounts the volume', () => {
    const reader = manifestsIn('backup-reader.yaml');
    const own = production.filter(
      ({ kind }) => kind === 'PersistentVolumeClaim' || kind === 'ServiceAccount',
    );
    expect(faultsOf([...own, ...reader])).toEqual([]);
    const claims = own.filter(({ kind }) => kind === 'PersistentVolumeClaim');
    expect(claims.map(({ metadata }) => metadata)).toMatchObject([
      {
        name: podOf(reader[0] as Manifest).volumes[0].persistentVolumeClaim.claimName,
        namespace: 'keyfence',
      },
    ]);
  });

  it('production has the tested alerts and scripts', () => {
    const read = (file: string) => readFileSync(join(KUBERNETES, '..', file), 'utf8');
    expect(named(production, 'PrometheusRule', 'keyfence')?.['spec']).toEqual({
      groups: parse(read('monitoring/alerts.yaml')).groups,
    });
    const files = named(production, 'ConfigMap', 'keyfence-redis-files')?.['data'];
    const wanted = globSync('*.{conf,acl,sh}', { cwd: join(KUBERNETES, '../redis') });
    expect(files).toEqual(Object.fromEntries(wanted.map((name) => [name, read(`redis/${name}`)])));
  });

  it('overlays/per-node allows socket and priority', () => {
    const all = installations['overlays/per-node'] ?? [];
    const [namespace] = all.filter(({ kind }) => kind === 'Namespace');
    expect(namespace?.metadata.labels).toMatchObject({ 'pod-security.kubernetes.io/enforce': 'privileged' });
    expect(all.filter(({ metadata }) => metadata.namespace !== 'keyfence-verifier')).toEqual([namespace]);
    const [daemonSet] = workloadsOf(all);
    const [quota] = all.filter(({ kind }) => kind === 'ResourceQuota');
    expect(quota?.['spec'].scopeSelector.matchExpressions[0].values).toEqual([
      podOf(daemonSet as Manifest).priorityClassName,
    ]);
  });

  it.each([
    ['overlays/dev', dev],
    ['overlays/production', production],
  ])('%s is one restricted, closed namespace', (_, all) => {
    const [namespace] = all.filter(({ kind }) => kind === 'Namespace');
    expect(namespace?.metadata.labels).toMatchObject({ 'pod-security.kubernetes.io/enforce': 'restricted' });
    const outside = all.filter(({ metadata }) => metadata.namespace !== namespace?.metadata.name);
    expect(outside).toEqual([namespace]);
    const policies = all.filter(({ kind }) => kind === 'NetworkPolicy').map(({ spec }) => spec);
    expect(policies).toContainEqual({ podSelector: {}, policyTypes: ['Ingress', 'Egress'] });
    for (const workload of workloadsOf(all)) {
      const { labels } = workload['spec'].template.metadata;
      const own = policies.filter(
        ({ podSelector }) =>
          podSelector.matchLabels?.['app.kubernetes.io/name'] &&
          Object.entries(podSelector.matchLabels).every(([name, value]) => labels[name] === value),
      );
      expect(own, workload.metadata.name).toHaveLength(1);
    }
  });

  it('one Redis can become three without a new set', () => {
    const fixedOf = (all: Manifest[]) => {
      const changeable = [
        'replicas',
        'template',
        'updateStrategy',
        'minReadySeconds',
        'revisionHistoryLimit',
      ];
      const { spec } = named(all, 'StatefulSet', 'keyfence-redis') as Manifest;
      return Object.fromEntries(Object.entries(spec).filter(([field]) => !changeable.includes(field)));
    };
    expect(fixedOf(dev)).toEqual(fixedOf(production));
    expect(fixedOf(dev)).toMatchObject({ podManagementPolicy: 'Parallel' });
  });

  it('production survives the loss of a node', () => {
    const controlPlane = named(production, 'Deployment', 'keyfence-control-plane') as Manifest;
    expect(controlPlane['spec']).toMatchObject({
      replicas: 2,
      strategy: { rollingUpdate: { maxUnavailable: 0 } },
    });
    const keys = podOf(controlPlane).topologySpreadConstraints.map(
      ({ topologyKey }: { topologyKey: string }) => topologyKey,
    );
    expect(keys).toEqual(['kubernetes.io/hostname', 'topology.kubernetes.io/zone']);
    expect(named(production, 'StatefulSet', 'keyfence-redis')?.['spec']).toMatchObject({
      replicas: 3,
      podManagementPolicy: 'Parallel',
    });
  });

  it('the policy injects what the component does', () => {
    const policy = named(installations['injection'] ?? [], 'MutatingAdmissionPolicy', 'keyfence-verifier');
    const expression: string = policy?.['spec'].mutations[0].jsonPatch.expression;
    // Objects of CEL, without their types, are YAML.
    const list = expression.slice(expression.lastIndexOf(']) + [') + 5);
    const patches: { path: string; value: object }[] = parse(
      list.replaceAll(/(JSONPatch|Object[\w.]*)\{/g, '{'),
    );
    const [patch] = manifestsIn('components/verifier-sidecar/sidecar.yaml');
    const { initContainers, volumes } = podOf(patch as Manifest);
    initContainers[0].image = 'params.data.image';
    expect(patches.map(({ path, value }) => [path, value])).toEqual([
      ['/spec/volumes/-', volumes[0]],
      ['/spec/initContainers/0', initContainers[0]],
    ]);
  });

  it('an API finds its node socket, and only that', () => {
    const [daemonSet] = workloadsOf(installations['overlays/per-node'] ?? []);
    const [onNode]: Container[] = podOf(daemonSet as Manifest).containers;
    const socket = onNode?.env?.find(({ name }) => name === 'LISTEN_UNIX')?.value ?? '';
    const [patch] = manifestsIn('example/on-node/socket.yaml');
    const [api]: Container[] = podOf(patch as Manifest).containers;
    expect(api?.env).toContainEqual({ name: 'VERIFIER_SOCKET', value: socket });
    expect(api?.volumeMounts).toContainEqual({
      name: 'keyfence',
      mountPath: dirname(socket),
      readOnly: true,
    });
  });

  it('README.md tells every Secret with its keys', () => {
    const readme = readFileSync(join(KUBERNETES, 'README.md'), 'utf8');
    for (const workload of workloadsOf(Object.values(installations).flat())) {
      for (const { secret, projected } of podOf(workload).volumes ?? []) {
        const sources = projected?.sources.map((source: { secret: object }) => source.secret) ?? [secret];
        for (const { name, secretName, items = [] } of sources.filter(Boolean)) {
          expect(readme).toContain(`\`${name ?? secretName}\``);
          for (const { key } of items) expect(readme).toContain(`\`${key}\``);
        }
      }
    }
  });
});

describe.skipIf(!kustomize)(
  `what kustomize makes of deploy/kubernetes${lacking(kustomize ? [] : ['kustomize'])}`,
  () => {
    const temporary = mkdtempSync(join(tmpdir(), 'keyfence-kustomize-'));
    afterAll(() => rmSync(temporary, { recursive: true }));

    it.each(Object.entries(installations))('%s: what its files say', (folder, wanted) => {
      const inOrder = (all: readonly Manifest[]) =>
        all.toSorted((a, b) => `${a.kind} ${a.metadata.name}`.localeCompare(`${b.kind} ${b.metadata.name}`));
      const { namespace } = folders.find((each) => each.folder === folder) ?? {};
      const there = (object: Manifest) =>
        namespace && object.kind !== 'Namespace'
          ? { ...object, metadata: { ...object.metadata, namespace } }
          : object;
      expect(inOrder(render(join(KUBERNETES, folder)))).toEqual(inOrder(wanted.map(there)));
    });

    const withPods = folders
      .map(({ folder }) => folder)
      .filter((folder) => !/injection|cert-manager|external-secrets/.test(folder));
    it.each(withPods)('%s: a chosen image is that of all containers', (folder) => {
      const all = kustomized({
        resources: [folder],
        images: [{ name: 'keyfence', newName: 'registry.example/keyfence', newTag: '9.9.9' }],
      });
      expect(faultsOf(all, EXTERNAL)).toEqual([]);
      expect(JSON.stringify(all)).toContain('"registry.example/keyfence:9.9.9"');
      expect(JSON.stringify(all)).not.toMatch(/"keyfence:\d|keyfence:0/);
    });

    it.each([
      ['any-user', (text: string) => text.split('"runAsUser"').length - 1, 1],
      ['ipv6', (text: string) => text.split('"::"').length - 1, 1],
      ['registry', (text: string) => text.split('"imagePullSecrets"').length - 1, 1],
    ] as const)('components/%s changes all that it says', (name, counted, count) => {
      const all = kustomized({ resources: ['example/sidecar'], components: [`components/${name}`] });
      expect(faultsOf(all, EXTERNAL)).toEqual([]);
      expect(counted(JSON.stringify(all))).toBe(count);
    });

    it('a Job can end beside its native sidecar', () => {
      const job = podOf(withComponent('Job', 'verifier-sidecar'));
      expect(job.initContainers.map(({ name }: Container) => name)).toEqual(['keyfence-verifier', 'migrate']);
      const cronJob = withComponent('CronJob', 'verifier-sidecar');
      expect(schemaFaults(cronJob)).toEqual([]);
      expect(podOf(cronJob)).toEqual(job);
    });

    const kinds = ['Deployment', 'StatefulSet', 'DaemonSet'];
    describe.each(kinds)('a %s that has containers of its own already', (kind) => {
      it('gets a native sidecar that outlives it', () => {
        const workload = withComponent(kind, 'verifier-sidecar');
        const { initContainers, containers, volumes } = podOf(workload);
        expect(initContainers.map(({ name }: Container) => name)).toEqual(['keyfence-verifier', 'migrate']);
        expect(initContainers[0]).toMatchObject({
          restartPolicy: 'Always',
          startupProbe: { httpGet: { path: '/readyz', port: 'keyfence-admin' } },
        });
        expect(initContainers[0].lifecycle).toBeUndefined();
        expect(containers.map(({ name }: Container) => name)).toEqual(['api']);
        expect(volumes.map(({ name }: Container) => name).sort()).toEqual(['data', 'keyfence-verifier']);
        expect(schemaFaults(workload)).toEqual([]);
      });

      it('gets an ordinary container before 1.29', () => {
        const workload = withComponent(kind, 'verifier-sidecar-legacy');
        const { initContainers, containers } = podOf(workload);
        expect(initContainers.map(({ name }: Container) => name)).toEqual(['migrate']);
        expect(containers.map(({ name }: Container) => name)).toEqual(['api', 'keyfence-verifier']);
        expect(containers[1]).toMatchObject({
          lifecycle: { preStop: { exec: { command: ['sleep', '15'] } } },
        });
        expect(containers[1].restartPolicy).toBeUndefined();
        expect(schemaFaults(workload)).toEqual([]);
      });
    });

    it('a workload without the label is left alone', () => {
      expect(podOf(withComponent('Deployment', 'verifier-sidecar', {})).initContainers).toHaveLength(1);
    });

    /** What a kustomization of one's own makes, with parts of deploy/kubernetes and an object of its own. */
    function kustomized(
      parts: { resources?: string[]; components?: string[]; images?: object[] },
      own?: object,
    ): Manifest[] {
      const above = mkdtempSync(join(temporary, 'above-'));
      const to = (paths: string[] = []) => paths.map((path) => relative(above, join(KUBERNETES, path)));
      const kustomization = {
        apiVersion: 'kustomize.config.k8s.io/v1beta1',
        kind: 'Kustomization',
        images: parts.images,
        resources: [...to(parts.resources), ...(own ? ['own.yaml'] : [])],
        components: to(parts.components),
      };
      writeFileSync(join(above, 'own.yaml'), JSON.stringify(own ?? {}));
      writeFileSync(join(above, 'kustomization.yaml'), JSON.stringify(kustomization));
      return render(above);
    }

    /** A workload with a container, an init container and a volume of its own, through one of the components. */
    function withComponent(
      kind: string,
      component: string,
      labels: object = { 'keyfence/verifier': 'sidecar' },
    ): Manifest {
      const template = {
        metadata: { labels: { app: 'x' } },
        spec: {
          initContainers: [{ name: 'migrate', image: 'x:1.0.0' }],
          containers: [{ name: 'api', image: 'x:1.0.0' }],
          volumes: [{ name: 'data', emptyDir: {} }],
        },
      };
      const lasting = {
        selector: { matchLabels: { app: 'x' } },
        template,
        ...(kind === 'StatefulSet' ? { serviceName: 'x' } : {}),
      };
      const cronJob = { schedule: '@daily', jobTemplate: { spec: { template } } };
      const spec = kind === 'CronJob' ? cronJob : kind === 'Job' ? { template } : lasting;
      const apiVersion = kind.endsWith('Job') ? 'batch/v1' : 'apps/v1';
      const app = { apiVersion, kind, metadata: { name: 'x', labels }, spec };
      const [made] = kustomized({ components: [`components/${component}`] }, app);
      if (!made) throw new Error(`${component}: nothing was rendered`);
      return made;
    }
  },
);

describe('the checks themselves', () => {
  const spoiled = (kind: string, spoil: (copy: Manifest) => void) =>
    structuredClone(dev).map((each) => {
      if (each.kind === kind) spoil(each);
      return each;
    });

  it.each<[string, string, (copy: Manifest) => void]>([
    [
      'an unknown field',
      'Deployment',
      (each) => Object.assign(podOf(each).containers[0], { imagePullPolice: 'x' }),
    ],
    [
      'an unknown field deep down',
      'Deployment',
      (each) => Object.assign(podOf(each).containers[0].readinessProbe, { port: 1 }),
    ],
    ['a wrong type', 'Deployment', (each) => Object.assign(each['spec'], { replicas: '2' })],
    ['a missing field', 'Service', (each) => delete each['spec'].ports[0].port],
    [
      'a misspelt list item',
      'NetworkPolicy',
      (each) => Object.assign(each['spec'], { policyTypes: 'Ingress' }),
    ],
  ])('see %s', (_, kind, spoil) => {
    expect(spoiled(kind, spoil).flatMap(schemaFaults).length).toBeGreaterThan(0);
  });

  it.each<[string, string, (copy: Manifest) => void, RegExp]>([
    [
      'a Service without pods',
      'Service',
      (each) => Object.assign(each['spec'].selector, { no: 'body' }),
      /selects nothing/,
    ],
    [
      'a probe at a port without a name',
      'Deployment',
      (each) => Object.assign(podOf(each).containers[0].ports[0], { name: 'x' }),
      /does not name/,
    ],
    [
      'an image without a version',
      'Deployment',
      (each) => Object.assign(podOf(each).containers[0], { image: 'redis:latest' }),
      /version/,
    ],
    [
      'a setting that does not exist',
      'ConfigMap',
      (each) => Object.assign(each['data'], { REDIS_URI: 'x' }),
      /no setting REDIS_URI/,
    ],
    [
      'a password in a setting',
      'ConfigMap',
      (each) => Object.assign(each['data'], { REDIS_URL: 'redis://a:b@c' }),
      /holds a password/,
    ],
    [
      'a secret file that is not mounted',
      'ConfigMap',
      (each) => Object.assign(each['data'], { REDIS_PASSWORD_FILE: '/x/y' }),
      /not mounted/,
    ],
  ])('see %s', (_, kind, spoil, fault) => {
    expect(ruleFaults(spoiled(kind, spoil), EXTERNAL).join('\n')).toMatch(fault);
  });

  it('see a container that may be root', () => {
    const [workload] = workloadsOf(
      spoiled('Deployment', (each) => delete podOf(each).securityContext.runAsNonRoot),
    );
    expect(securityFaults(workload as Manifest)).not.toEqual([]);
  });
});
