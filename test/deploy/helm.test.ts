import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { CHART, helm, plainManifests, runHelm } from '../../deploy/helm/render.ts';
import { VERSION } from '../../shared/version.ts';
import { helmArguments, isHook, noHelm, renderChart } from './helm.ts';
import { CHOICES } from './helm-choices.ts';
import { faultsOf, podOf, workloadsOf } from './kubernetes-rules.ts';
import { schemaFaults } from './kubernetes-schema.ts';
import { type Manifest, objectsOf } from './kustomize.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');
const temporary = mkdtempSync(join(tmpdir(), 'keyfence-helm-'));
afterAll(() => rmSync(temporary, { recursive: true }));

interface Schema {
  readonly properties?: Readonly<Record<string, Schema>>;
}

it('values.yaml and its schema have the same values', () => {
  const file = (name: string) => readFileSync(join(CHART, name), 'utf8');
  const differences = (
    values: Record<string, unknown>,
    { properties = {} }: Schema,
    path: string,
  ): string[] =>
    [...new Set([...Object.keys(values), ...Object.keys(properties)])].flatMap((name) => {
      const [value, schema] = [values[name], properties[name]];
      if (name === 'global') return [];
      if (value === undefined || schema === undefined) return [path + name];
      return schema.properties ? differences(value as typeof values, schema, `${path}${name}.`) : [];
    });
  expect(differences(parse(file('values.yaml')), JSON.parse(file('values.schema.json')), '')).toEqual([]);
});

describe('the chart', () => {
  it('has the version of the project and its image', () => {
    const { version } = JSON.parse(read('package.json'));
    expect(parse(read('deploy/helm/keyfence/Chart.yaml'))).toMatchObject({ version, appVersion: version });
  });
});

describe.skipIf(!helm)(`what helm makes of the chart${noHelm}`, () => {
  describe.each(Object.entries(CHOICES))('%s', (_, values) => {
    const all = helm ? renderChart({ values }) : [];

    it('passes lint', () => {
      const [, , , , ...set] = helmArguments({ values });
      expect(runHelm('lint', '--strict', CHART, '--kube-version', '1.36.0', ...set)).toContain(
        '0 chart(s) failed',
      );
    });

    it('is accepted by Kubernetes 1.36, restricted', () => {
      expect(all.length).toBeGreaterThan(0);
      expect(faultsOf(all)).toEqual([]);
    });

    it('is in the namespace of the release, labelled', () => {
      for (const { kind, metadata } of all) {
        const clusterWide = /^(MutatingAdmissionPolicy|ClusterRole|CustomResourceDefinition)/.test(kind);
        const elsewhere = ['billing', 'shop'].includes(metadata.namespace ?? '');
        if (!elsewhere) expect(metadata.namespace, metadata.name).toBe(clusterWide ? undefined : 'keyfence');
        expect(metadata.labels, metadata.name).toMatchObject({ 'app.kubernetes.io/managed-by': 'Helm' });
      }
    });
  });

  const EVERYTHING = {
    'redis.mode': 'sentinel',
    'redis.backup.enabled': true,
    'sample.enabled': true,
    'verifier.node.enabled': true,
    'verifier.gateways.enabled': true,
  };
  const occurrences = (all: readonly Manifest[], text: string) => JSON.stringify(all).split(text).length - 1;
  const atPriority = (all: readonly Manifest[]) =>
    workloadsOf(all).filter((each) => podOf(each).priorityClassName === 'keyfence').length;
  it.each<[string, Record<string, unknown>, (all: readonly Manifest[]) => unknown, unknown]>([
    [
      'controlPlane.autoscaling',
      { 'controlPlane.autoscaling.enabled': true },
      (all) =>
        workloadsOf(all).filter(({ kind, spec }) => kind !== 'DaemonSet' && spec.replicas === undefined)
          .length,
      1,
    ],
    [
      'imagePullSecrets',
      { imagePullSecrets: [{ name: 'registry' }] },
      (all) => occurrences(all, '"imagePullSecrets":[{"name":"registry"}]'),
      6,
    ],
    [
      'priorityClassName',
      { 'controlPlane.priorityClassName': 'keyfence', 'redis.priorityClassName': 'keyfence' },
      atPriority,
      2,
    ],
    [
      'listenAddress',
      { listenAddress: '::' },
      (all) => [occurrences(all, '"::"'), occurrences(all, '0.0.0.0')],
      [6, 0],
    ],
    [
      'anyUser, but for the verifier of a node',
      { anyUser: true },
      (all) =>
        occurrences(
          all.filter(({ kind }) => kind !== 'DaemonSet'),
          'runAsUser',
        ),
      0,
    ],
    [
      'redis.external.passwordCommand',
      {
        ...{ 'redis.mode': 'external', 'redis.backup.enabled': false },
        'redis.external': { url: 'rediss://r:6379', passwordCommand: 'print-token eu-1' },
      },
      (all) =>
        ['"REDIS_PASSWORD_COMMAND","value":"print-token eu-1"', 'REDIS_PASSWORD_FILE'].map((text) =>
          occurrences(all, text),
        ),
      [4, 0],
    ],
    ['serviceMesh', { serviceMesh: true }, (all) => occurrences(all, 'skip-outbound-ports'), 4],
    [
      'commonLabels, by which nothing selects',
      { commonLabels: { team: 'platform' } },
      (all) =>
        all.filter(
          ({ metadata, spec }) =>
            metadata.labels?.['team'] !== 'platform' ||
            metadata.labels['app.kubernetes.io/part-of'] !== 'keyfence' ||
            /team|part-of/.test(JSON.stringify([spec?.selector, spec?.podSelector])),
        ),
      [],
    ],
    [
      'redis.backup',
      { 'redis.backup': { enabled: true, schedule: '@daily', keep: 3, size: '1Gi' } },
      (all) =>
        ['"schedule":"@daily"', '"KEEP","value":"3"', '"storage":"1Gi"'].map((text) =>
          occurrences(all, text),
        ),
      [1, 1, 1],
    ],
  ])('%s changes what it says, and all of it', (_, values, seen, wanted) => {
    const all = renderChart({ values: { ...EVERYTHING, ...values } }).filter((object) => !isHook(object));
    expect(seen(all)).toEqual(wanted);
    expect(faultsOf(all)).toEqual([]);
  });

  it('two releases in a namespace do not collide', () => {
    const [one, other] = ['keyfence', 'staging'].map((release) =>
      renderChart({ release, values: { 'redis.mode': 'sentinel' } }),
    );
    const names = (all: readonly Manifest[] = []) =>
      all.map(({ kind, metadata }) => `${kind} ${metadata.name}`);
    expect(names(one).filter((name) => names(other).includes(name))).toEqual([]);
    for (const { spec } of [...(one ?? []), ...(other ?? [])].filter(({ kind }) => kind === 'Service'))
      expect(spec.selector).toHaveProperty(['app.kubernetes.io/instance']);
    // By these ends alerts know the jobs.
    expect(names(other)).toContain('Service staging-keyfence-control-plane');
  });

  it('reaches a TLS Redis by the certified names', () => {
    const all = renderChart({ values: CHOICES['three Redis with TLS, watched'] ?? {} });
    const settings = (namespace: string) =>
      all.find(
        ({ kind, metadata }) =>
          kind === 'ConfigMap' && metadata.namespace === namespace && /redis$|verifier$/.test(metadata.name),
      )?.['data'];
    expect(settings('keyfence')).toMatchObject({
      REDIS_MODE: 'sentinel',
      REDIS_URL: [0, 1, 2].map((i) => `rediss://keyfence-redis-${i}.keyfence-redis:26379`).join(),
      REDIS_TLS_CA_FILE: '/run/secrets/keyfence/ca.crt',
    });
    expect(settings('billing').REDIS_URL).toContain(
      'rediss://keyfence-redis-0.keyfence-redis.keyfence:26379',
    );
    for (const workload of workloadsOf(all)) {
      const sources: { secret: { name: string; optional?: boolean } }[] = podOf(workload).volumes.flatMap(
        ({ projected }: { projected?: { sources: object[] } }) => projected?.sources ?? [],
      );
      const tls = sources.filter(({ secret }) => secret?.name === 'keyfence-redis-tls');
      expect(tls.map(({ secret }) => secret.optional)).toEqual([false]);
    }
  });

  it('makes the manifests of deploy/kubernetes', () => {
    for (const [file, content] of Object.entries(plainManifests())) expect(read(file), file).toBe(content);
  });

  it('has the dashboard and labels for Prometheus', () => {
    const all = renderChart({ values: CHOICES['three Redis with TLS, watched'] ?? {} });
    const of = (kind: string, name: string) =>
      all.find((each) => each.kind === kind && each.metadata.name === name);
    expect(of('ConfigMap', 'keyfence-dashboard')?.['data']).toEqual({
      'keyfence.json': read('deploy/monitoring/dashboard.json'),
    });
    expect(of('PrometheusRule', 'keyfence')?.metadata.labels).toMatchObject({ release: 'prometheus' });
  });

  it('makes what deploy/kubernetes/README.md says', () => {
    const readme = read('deploy/kubernetes/README.md');
    const [, command = ''] = readme.match(/```sh\n(helm template [\s\S]*?) >keyfence.yaml\n```/) ?? [];
    const script = `helm() { ${helm} "$@"; }\n${command}`;
    const all = objectsOf(
      execFileSync('sh', ['-ec', script], { cwd: ROOT, encoding: 'utf8', stdio: 'pipe' }),
    );
    expect(faultsOf(all)).toEqual([]);
    expect(occurrences(all, '"registry.example/keyfence:')).toBe(1);
    expect(occurrences(all, 'skip-outbound-ports')).toBe(2);
  });

  it('opens the operator to the ports of the cluster, and makes its kinds unless somebody else does', () => {
    const operator = { 'operator.enabled': true, 'operator.namespaces': ['shop'] };
    const text = (values: object) => JSON.stringify(renderChart({ values: { ...operator, ...values } }));
    expect(text({})).toContain('apikeys.keyfence.io"');
    expect(text({})).toMatch(/"port":6443/);
    const other = text({ 'operator.crds': false, 'networkPolicy.kubernetesPorts': [16443] });
    expect(other).not.toContain('CustomResourceDefinition"');
    expect(other).toMatch(/"port":16443/);
    expect(other).not.toMatch(/"port":6443/);
  });

  it('is whole as a package by itself', () => {
    runHelm('package', CHART, '--destination', temporary);
    const { version } = JSON.parse(read('package.json'));
    const values = CHOICES['three Redis with TLS, watched'] ?? {};
    const packed = renderChart({ chart: join(temporary, `keyfence-${version}.tgz`), values });
    expect(packed).toEqual(renderChart({ values }));
  });

  it.each<[string, Record<string, unknown>, RegExp]>([
    ['a value that there is not', { 'controlPlane.replica': 3 }, /replica/],
    ['a mode that there is not', { 'redis.mode': 'cluster' }, /redis/],
    ['a password among the settings', { 'controlPlane.settings': { REDIS_PASSWORD: 'x' } }, /settings/],
    ['a password in the address', { 'redis.external.url': 'redis://me:secret@host' }, /url/],
    [
      'an Ingress without TLS',
      { 'controlPlane.ingress': { enabled: true, tlsSecretName: '' } },
      /tlsSecretName/,
    ],
    ['a name that no alert knows', { fullnameOverride: 'keys' }, /fullnameOverride/],
    ['an external Redis without an address', { 'redis.mode': 'external' }, /redis.external.url/],
    [
      'verifiers without a Redis',
      { 'controlPlane.enabled': false, 'verifier.node.enabled': true },
      /redis.mode must be external/,
    ],
    ['an operator without namespaces', { 'operator.enabled': true }, /namespaces/],
    ['a Gateway of no class', { 'controlPlane.gateway.enabled': true }, /className/],
  ])('refuses %s', (_, values, message) => {
    expect(() => renderChart({ values })).toThrow(message);
  });

  it('refuses a cluster that is too old', () => {
    expect(() => renderChart({ kubeVersion: '1.28.0' })).toThrow(/kubeVersion/);
    expect(() =>
      renderChart({ kubeVersion: '1.35.0', values: { 'verifier.injection.enabled': true } }),
    ).toThrow(/1\.36/);
  });

  it('lends the verifier to a dependent chart', () => {
    const chart = join(temporary, 'billing');
    mkdirSync(join(chart, 'templates'), { recursive: true });
    mkdirSync(join(chart, 'charts'));
    symlinkSync(CHART, join(chart, 'charts', 'keyfence'));
    writeFileSync(join(chart, 'Chart.yaml'), 'apiVersion: v2\nname: billing\nversion: 1.0.0\n');
    writeFileSync(
      join(chart, 'values.yaml'),
      'keyfence: {controlPlane: {enabled: false}, image: {repository: mine}, verifier: {settings: {CACHE_KEYS_MAX: 5}}}\n',
    );
    const [, snippet = ''] =
      read('deploy/helm/keyfence/README.md').match(/```yaml\n(metadata:[\s\S]*?)```/) ?? [];
    const pod = `${snippet}  containers: [{name: api, image: 'x:1.0.0'}]\n`;
    const indented = pod.replaceAll(/^(?=.)/gm, '    ').replaceAll('nindent 4', 'nindent 8');
    const head = 'apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: billing}\n';
    const spec = `spec:\n  selector: {matchLabels: {keyfence/verifier: sidecar}}\n  template:\n${indented}`;
    writeFileSync(join(chart, 'templates', 'deployment.yaml'), head + spec);
    const all = renderChart({ chart });
    expect(all.map(({ kind }) => kind)).toEqual(['Deployment']);
    expect(all.flatMap(schemaFaults)).toEqual([]);
    const [sidecar] = podOf(all[0] as Manifest).initContainers;
    expect(sidecar).toMatchObject({
      name: 'keyfence-verifier',
      image: `mine:${VERSION}`,
      restartPolicy: 'Always',
    });
    expect(sidecar.env).toContainEqual({ name: 'CACHE_KEYS_MAX', value: '5' });
  });
});
