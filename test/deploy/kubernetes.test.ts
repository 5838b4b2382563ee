import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, relative } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { lacking } from '../harness/programs.ts';
import {
  type Container,
  containersOf,
  podOf,
  ruleFaults,
  securityFaults,
  workloadsOf,
} from './kubernetes-rules.ts';
import { schemaFaults } from './kubernetes-schema.ts';
import { kustomize, type Manifest, render } from './kustomize.ts';

const root = join(import.meta.dirname, '..', '..', 'deploy', 'kubernetes');
const kustomizations = globSync('**/kustomization.yaml', { cwd: root })
  .map((file) => ({ folder: dirname(file), ...parse(readFileSync(join(root, file), 'utf8')) }))
  .sort((a, b) => a.folder.localeCompare(b.folder));
const { version } = JSON.parse(readFileSync(join(root, '..', '..', 'package.json'), 'utf8'));
const skipped = lacking(kustomize ? [] : ['kustomize']);
/** Objects that each needs from outside: see deploy/kubernetes/README.md. */
const EXTERNAL = ['keyfence-redis', 'keyfence-verifier'];
/** The socket on the node is a hostPath, and somebody must own its folder. */
const ON_NODE = ['hostPath volume', 'socket-folder may be root', 'socket-folder has CHOWN'];

describe('every object as it stands in its file', () => {
  const files = kustomizations.flatMap(({ folder, resources = [] }) =>
    resources.filter((name: string) => name.endsWith('.yaml')).map((name: string) => join(folder, name)),
  );

  it.each(files)('%s is what Kubernetes 1.36 knows', (file) => {
    const options = { version: '1.1', merge: true } as const;
    const documents = parseAllDocuments(readFileSync(join(root, file), 'utf8'), options);
    expect(documents.flatMap((document) => schemaFaults(document.toJS()))).toEqual([]);
  });
});

it('no way to install a control plane lets a misspelt apiId make an API', () => {
  const textOf = (file: string) => readFileSync(join(root, '..', file), 'utf8');
  const objects = parseAllDocuments(textOf('kubernetes/base/control-plane.yaml')).map((each) => each.toJS());
  const [container] = objects.find(({ kind }) => kind === 'Deployment').spec.template.spec.containers;
  expect(container.env).toContainEqual({ name: 'API_AUTO_CREATE', value: 'false' });
  expect(parse(textOf('helm/keyfence/values.yaml')).controlPlane.settings.API_AUTO_CREATE).toBe(false);
  const unit = textOf('systemd/keyfence-control-plane.service');
  expect(unit).toMatch(/^Environment=API_AUTO_CREATE=false$/m);
  // The administrator's file comes after it, and wins.
  expect(unit.indexOf('API_AUTO_CREATE')).toBeLessThan(unit.indexOf('EnvironmentFile='));
});

it('no manifest has anchors: kubectl 1.21 loses what they stand for where there is a patch, without a word', () => {
  const files = globSync('**/*.yaml', { cwd: root }).filter((file) => !file.endsWith('prometheus-rule.yaml'));
  const anchored = files.filter((file) =>
    /(: |- |\[)[&*]\w|<<:/.test(readFileSync(join(root, file), 'utf8')),
  );
  expect(anchored).toEqual([]);
});

describe.skipIf(!kustomize)(`what kustomize makes of deploy/kubernetes${skipped}`, () => {
  const temporary = mkdtempSync(join(tmpdir(), 'keyfence-kustomize-'));
  afterAll(() => rmSync(temporary, { recursive: true }));

  const complete = kustomizations.filter(({ kind }) => kind === 'Kustomization').map(({ folder }) => folder);
  describe.each(complete)('%s', (folder) => {
    const all = kustomize ? render(join(root, folder)) : [];

    it('is accepted by Kubernetes 1.36 under strict validation', () => {
      expect(all.flatMap(schemaFaults)).toEqual([]);
      expect(all.length).toBeGreaterThan(0);
    });

    it('hangs together: selectors, ports, budgets, volumes, settings, secrets in files, versions', () => {
      expect(ruleFaults(all, EXTERNAL)).toEqual([]);
    });

    it('every pod runs under the Pod Security level restricted, except for the socket on the node', () => {
      const allowed = folder.endsWith('node') ? ON_NODE : [];
      const faults = workloadsOf(all).flatMap(securityFaults);
      expect(faults.filter((fault) => !allowed.includes(fault))).toEqual([]);
    });
  });

  it('overlays/per-node has a namespace of its own that lets its socket be, and a quota that lets its priority be', () => {
    const all = render(join(root, 'overlays/per-node'));
    const [namespace] = all.filter(({ kind }) => kind === 'Namespace');
    expect(namespace?.metadata.labels).toMatchObject({ 'pod-security.kubernetes.io/enforce': 'privileged' });
    expect(all.filter(({ metadata }) => metadata.namespace !== 'keyfence-verifier')).toEqual([namespace]);
    const [daemonSet] = workloadsOf(all);
    const [quota] = all.filter(({ kind }) => kind === 'ResourceQuota');
    expect(quota?.['spec'].scopeSelector.matchExpressions[0].values).toEqual([
      podOf(daemonSet as Manifest).priorityClassName,
    ]);
  });

  it.each(['overlays/dev', 'overlays/production'])(
    '%s is in one namespace, restricted, closed by default',
    (folder) => {
      const all = render(join(root, folder));
      const [namespace] = all.filter(({ kind }) => kind === 'Namespace');
      expect(namespace?.metadata.labels).toMatchObject({
        'pod-security.kubernetes.io/enforce': 'restricted',
      });
      const outside = all.filter(({ metadata }) => metadata.namespace !== namespace?.metadata.name);
      expect(outside).toEqual([namespace]);
      const policies = all.filter(({ kind }) => kind === 'NetworkPolicy').map(({ spec }) => spec);
      expect(policies).toContainEqual({ podSelector: {}, policyTypes: ['Ingress', 'Egress'] });
      for (const workload of workloadsOf(all)) {
        const { labels } = workload['spec'].template.metadata;
        const own = policies.filter(({ podSelector }) =>
          Object.entries(podSelector.matchLabels ?? { none: 'none' }).every(
            ([name, value]) => labels[name] === value,
          ),
        );
        expect(own, workload.metadata.name).toHaveLength(1);
      }
    },
  );

  it('one Redis can become three: nothing differs that a StatefulSet can never change', () => {
    const fixedOf = (overlay: string) => {
      const [set] = render(join(root, overlay)).filter(({ kind }) => kind === 'StatefulSet');
      const changeable = [
        'replicas',
        'template',
        'updateStrategy',
        'minReadySeconds',
        'revisionHistoryLimit',
      ];
      return Object.fromEntries(
        Object.entries(set?.['spec']).filter(([field]) => !changeable.includes(field)),
      );
    };
    expect(fixedOf('overlays/dev')).toEqual(fixedOf('overlays/production'));
    expect(fixedOf('overlays/dev')).toMatchObject({ podManagementPolicy: 'Parallel' });
  });

  it('production survives a node: two control planes and three Redis, spread', () => {
    const of = (name: string) =>
      render(join(root, 'overlays/production')).find(
        (each) => each.metadata.name === name && each['spec']?.template,
      );
    const controlPlane = of('keyfence-control-plane');
    expect(controlPlane?.['spec']).toMatchObject({
      replicas: 2,
      strategy: { rollingUpdate: { maxUnavailable: 0 } },
    });
    const keys = podOf(controlPlane as Manifest).topologySpreadConstraints.map(
      ({ topologyKey }: { topologyKey: string }) => topologyKey,
    );
    expect(keys).toEqual(['kubernetes.io/hostname', 'topology.kubernetes.io/zone']);
    expect(of('keyfence-redis')?.['spec']).toMatchObject({ replicas: 3, podManagementPolicy: 'Parallel' });
  });

  it('a Job and a CronJob get it as a native sidecar, which does not keep them from ending', () => {
    const job = podOf(withComponent('Job', 'verifier-sidecar'));
    expect(job.initContainers.map(({ name }: Container) => name)).toEqual(['keyfence-verifier', 'migrate']);
    const cronJob = withComponent('CronJob', 'verifier-sidecar');
    expect(schemaFaults(cronJob)).toEqual([]);
    expect(cronJob['spec'].jobTemplate.spec.template.spec).toEqual(job);
  });

  const KNOBS: Record<string, (all: readonly Manifest[]) => unknown> = {
    autoscaling: (all) => workloadsOf(all).filter(({ spec }) => spec.replicas === undefined).length,
    registry: (all) => all.filter(({ imagePullSecrets }) => imagePullSecrets).length,
    priority: (all) => workloadsOf(all).filter((each) => podOf(each).priorityClassName === 'keyfence').length,
    ipv6: (all) => JSON.stringify(all).split('"::"').length - 1,
    'any-user': (all) =>
      workloadsOf(all).flatMap((each) => {
        const { lasting } = containersOf(each);
        return [podOf(each), ...lasting].filter(({ securityContext }) => securityContext?.runAsUser);
      }).length,
    // Those that lack a label, and those that select by one.
    labels: (all) =>
      all.filter(
        ({ metadata, spec }) =>
          metadata.labels?.['app.kubernetes.io/version'] !== version ||
          /part-of/.test(JSON.stringify([spec?.selector, spec?.podSelector])),
      ).length,
    'service-mesh': (all) => JSON.stringify(all).split('skip-outbound-ports').length - 1,
  };
  // Of the control plane, Redis and the sample with its sidecar.
  const CHANGED = {
    labels: 0,
    autoscaling: 1,
    registry: 3,
    priority: 2,
    ipv6: 3,
    'any-user': 1,
    'service-mesh': 2,
  };
  it.each(Object.entries(CHANGED))('components/%s changes what it says, and all of it', (name, count) => {
    const above = mkdtempSync(join(temporary, 'knob-'));
    const to = (path: string) => relative(above, join(root, path));
    const kustomization = {
      apiVersion: 'kustomize.config.k8s.io/v1beta1',
      kind: 'Kustomization',
      resources: [to('overlays/production'), to('example/sidecar')],
      components: [to(`components/${name}`)],
    };
    writeFileSync(join(above, 'kustomization.yaml'), JSON.stringify(kustomization));
    const all = render(above);
    expect(all.flatMap(schemaFaults)).toEqual([]);
    expect(ruleFaults(all, EXTERNAL)).toEqual([]);
    expect(KNOBS[name]?.(all)).toBe(count);
  });

  const kinds = ['Deployment', 'StatefulSet', 'DaemonSet'];
  describe.each(kinds)('a %s that has containers of its own already', (kind) => {
    it('gets its verifier first, as a native sidecar that outlives the application', () => {
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

    it('gets it as an ordinary container before 1.29, which stops later than the application', () => {
      const workload = withComponent(kind, 'verifier-sidecar-legacy');
      const { initContainers, containers } = podOf(workload);
      expect(initContainers.map(({ name }: Container) => name)).toEqual(['migrate']);
      expect(containers.map(({ name }: Container) => name)).toEqual(['api', 'keyfence-verifier']);
      expect(containers[1]).toMatchObject({ lifecycle: { preStop: { exec: { command: ['sleep', '15'] } } } });
      expect(containers[1].restartPolicy).toBeUndefined();
      expect(schemaFaults(workload)).toEqual([]);
    });
  });

  it('a workload without the label is left alone', () => {
    expect(podOf(withComponent('Deployment', 'verifier-sidecar', {})).initContainers).toHaveLength(1);
  });

  it('the admission policy injects the same container and volume as the component', () => {
    const policy = render(join(root, 'injection')).find(({ kind }) => kind === 'MutatingAdmissionPolicy');
    const expression: string = policy?.['spec'].mutations[0].jsonPatch.expression;
    // Objects of CEL, without their types, are YAML.
    const list = expression.slice(expression.lastIndexOf(']) + [') + 5);
    const patches = parse(list.replaceAll(/(JSONPatch|Object[\w.]*)\{/g, '{'));
    const pod = podOf(withComponent('Deployment', 'verifier-sidecar'));
    pod.initContainers[0].image = 'params.data.image';
    expect(patches.map(({ value }: { value: object }) => value)).toEqual([
      pod.volumes.find(({ name }: Container) => name === 'keyfence-verifier'),
      pod.initContainers[0],
    ]);
    expect(patches.map(({ path }: { path: string }) => path)).toEqual([
      '/spec/volumes/-',
      '/spec/initContainers/0',
    ]);
  });

  const pods = complete.filter((folder) => !/cert-manager|external-secrets/.test(folder));
  it.each(pods)(
    'an image that is chosen above %s is that of every container, of the injected one, too',
    (folder) => {
      const above = mkdtempSync(join(temporary, 'image-'));
      // kustomize reads such a file from beside the overlay alone.
      cpSync(join(root, 'injection', 'image-field.yaml'), join(above, 'image-field.yaml'));
      const to = (path: string) => relative(above, join(root, path));
      writeFileSync(
        join(above, 'kustomization.yaml'),
        JSON.stringify({
          apiVersion: 'kustomize.config.k8s.io/v1beta1',
          kind: 'Kustomization',
          resources: [to(folder)],
          images: [{ name: 'keyfence', newName: 'registry.example/keyfence', newTag: '9.9.9' }],
          ...(folder === 'injection' ? { configurations: ['image-field.yaml'] } : {}),
        }),
      );
      const text = JSON.stringify(render(above));
      expect(text).toContain('"registry.example/keyfence:9.9.9"');
      expect(text).not.toMatch(/"keyfence:\d|keyfence:0/);
    },
  );

  it('the verifier of a node is the sidecar, but for its socket', () => {
    const [daemonSet] = workloadsOf(render(join(root, 'verifier-per-node')));
    const [onNode] = containersOf(daemonSet as Manifest).lasting;
    const [sidecar] = podOf(withComponent('Deployment', 'verifier-sidecar')).initContainers;
    const same = ['image', 'command', 'envFrom', 'ports', 'readinessProbe', 'livenessProbe', 'resources'];
    for (const field of same) expect(onNode?.[field], field).toEqual(sidecar[field]);
    const socket = onNode?.env?.find(({ name }) => name === 'LISTEN_UNIX')?.value ?? '';
    const [api] = workloadsOf(render(join(root, 'example/on-node'))).flatMap(
      (each) => podOf(each).containers,
    );
    expect(api.env).toContainEqual({ name: 'VERIFIER_SOCKET', value: socket });
    expect(api.volumeMounts).toContainEqual({ name: 'keyfence', mountPath: dirname(socket), readOnly: true });
  });

  it('every Secret that is asked for is told of in README.md, with its keys', () => {
    const readme = readFileSync(join(root, 'README.md'), 'utf8');
    for (const folder of complete) {
      for (const workload of workloadsOf(render(join(root, folder)))) {
        for (const { secret, projected } of podOf(workload).volumes ?? []) {
          const sources = projected?.sources.map((source: { secret: object }) => source.secret) ?? [secret];
          for (const { name, secretName, items = [] } of sources.filter(Boolean)) {
            expect(readme).toContain(`\`${name ?? secretName}\``);
            for (const { key } of items) expect(readme).toContain(`\`${key}\``);
          }
        }
      }
    }
  });

  describe('the checks themselves', () => {
    const good = kustomize ? render(join(root, 'overlays/dev')) : [];
    const spoiled = (kind: string, spoil: (copy: Manifest) => void) =>
      structuredClone(good).map((each) => {
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

  /** A workload with a container, an init container and a volume of its own, through one of the components. */
  function withComponent(
    kind: string,
    component: string,
    labels: object = { 'keyfence/verifier': 'sidecar' },
  ): Manifest {
    const folder = mkdtempSync(join(temporary, 'app-'));
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
    const components = [relative(folder, join(root, 'components', component))];
    writeFileSync(join(folder, 'app.yaml'), JSON.stringify(app));
    writeFileSync(
      join(folder, 'kustomization.yaml'),
      JSON.stringify({
        apiVersion: 'kustomize.config.k8s.io/v1beta1',
        kind: 'Kustomization',
        resources: ['app.yaml'],
        components,
      }),
    );
    const [made] = render(folder);
    if (!made) throw new Error(`${basename(folder)}: nothing was rendered`);
    return made;
  }
});
