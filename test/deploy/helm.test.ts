import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { CHART, helm, helmArguments, isHook, noHelm, renderChart, runHelm } from './helm.ts';
import { CHOICES } from './helm-choices.ts';
import { podOf, ruleFaults, securityFaults, workloadsOf } from './kubernetes-rules.ts';
import { schemaFaults } from './kubernetes-schema.ts';
import type { Manifest } from './kustomize.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');
const temporary = mkdtempSync(join(tmpdir(), 'keyfence-helm-'));
afterAll(() => rmSync(temporary, { recursive: true }));

/** Those of a node have a hostPath, and somebody must own its folder. */
const ON_NODE = ['hostPath volume', 'socket-folder may be root', 'socket-folder has CHOWN'];

describe('the chart', () => {
  it('is of the version of the project, and installs an image of that version', () => {
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

    it('is accepted by Kubernetes 1.36 under strict validation', () => {
      expect(all.flatMap(schemaFaults)).toEqual([]);
      expect(all.length).toBeGreaterThan(0);
    });

    it('hangs together: selectors, ports, budgets, volumes, settings, secrets in files, versions', () => {
      expect(ruleFaults(all.filter((object) => !isHook(object)))).toEqual([]);
    });

    it('is in the namespace of the release, and has its labels', () => {
      for (const { kind, metadata } of all) {
        const clusterWide = kind.startsWith('MutatingAdmissionPolicy');
        const elsewhere = ['billing', 'shop'].includes(metadata.namespace ?? '');
        if (!elsewhere) expect(metadata.namespace, metadata.name).toBe(clusterWide ? undefined : 'keyfence');
        expect(metadata.labels, metadata.name).toMatchObject({ 'app.kubernetes.io/managed-by': 'Helm' });
      }
    });

    it('every pod runs under the Pod Security level restricted, except for the socket on the node', () => {
      const pods = all.filter(({ kind }) => kind === 'Pod').map(asWorkload);
      for (const workload of [...workloadsOf(all), ...pods]) {
        const allowed = workload.kind === 'DaemonSet' ? ON_NODE : [];
        expect(securityFaults(workload).filter((fault) => !allowed.includes(fault))).toEqual([]);
      }
    });
  });

  it('two releases in one namespace share no name, and neither selects the pods of the other', () => {
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

  it('reaches a Redis with TLS by names that its certificate has, and lets no pod start without it', () => {
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

  it('has alerts, the dashboard and what Redis runs from the files that are tested elsewhere', () => {
    const all = renderChart({ values: CHOICES['three Redis with TLS, watched'] ?? {} });
    const of = (kind: string, name: string) =>
      all.find((each) => each.kind === kind && each.metadata.name === name);
    expect(of('PrometheusRule', 'keyfence')?.['spec']).toEqual({
      groups: parse(read('deploy/monitoring/alerts.yaml')).groups,
    });
    expect(of('ConfigMap', 'keyfence-dashboard')?.['data']).toEqual({
      'keyfence.json': read('deploy/monitoring/dashboard.json'),
    });
    expect(of('PrometheusRule', 'keyfence')?.metadata.labels).toMatchObject({ release: 'prometheus' });
    const files = of('ConfigMap', 'keyfence-redis-files')?.['data'];
    for (const [name, text] of Object.entries(files)) expect(text, name).toBe(read(`deploy/redis/${name}`));
  });

  it('is whole as a package, without what is around it here', () => {
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
    ['a Gateway of no class', { 'controlPlane.gateway.enabled': true }, /className/],
  ])('refuses %s', (_, values, message) => {
    expect(() => renderChart({ values })).toThrow(message);
  });

  it('refuses a cluster that is too old, and has no injection where there is none', () => {
    expect(() => renderChart({ kubeVersion: '1.28.0' })).toThrow(/kubeVersion/);
    expect(() =>
      renderChart({ kubeVersion: '1.35.0', values: { 'verifier.injection.enabled': true } }),
    ).toThrow(/1\.36/);
  });

  it('gives a chart of one’s own the verifier, when taken as a dependency', () => {
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
      image: 'mine:0.1.0',
      restartPolicy: 'Always',
    });
    expect(sidecar.env).toContainEqual({ name: 'CACHE_KEYS_MAX', value: '5' });
  });
});

/** The pod of `helm test` in the form of those that last, so that the same rules read it. */
const asWorkload = (pod: Manifest): Manifest => ({
  ...pod,
  spec: { template: { metadata: pod.metadata, spec: pod['spec'] } },
});
