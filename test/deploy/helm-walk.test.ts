import { execFile } from 'node:child_process';
import { chmodSync, cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CHART, helm } from '../../deploy/helm/render.ts';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';
import { isHook, noHelm, renderChart } from './helm.ts';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '..', '..');

describe('what people do after an installation', () => {
  const temporary = mkdtempSync(join(tmpdir(), 'keyfence-helm-'));
  let fleet: Fleet;
  beforeAll(async () => {
    // A slow machine is not what is tested.
    fleet = await Fleet.start({ env: { LOOKUP_WAIT_MS: '5000' } });
    writeFileSync(join(temporary, 'root-key'), `${ROOT_KEY}\nanother-root-key-0123456789abcdef01234567\n`);
  });
  afterAll(async () => {
    await fleet.stop();
    rmSync(temporary, { recursive: true });
  });

  const walk = (environment: object = {}) =>
    run(process.execPath, [join(CHART, 'files', 'walk.mjs')], {
      env: {
        CONTROL_PLANE_URL: fleet.controlPlanes[0]?.address,
        VERIFIER_URL: fleet.verifiers[0]?.address,
        API_ID: 'helm-test',
        ROOT_KEY_FILE: join(temporary, 'root-key'),
        ...environment,
      },
    });

  it('`helm test` takes a key through its life', async () => {
    for (const _ of ['once', 'and again']) {
      const { stdout } = await walk();
      const verdicts = [...stdout.matchAll(/verifyKey: (\w+)/g)].map(([, verdict]) => verdict);
      expect(verdicts).toEqual(['VALID', 'DISABLED', 'NOT_FOUND']);
    }
    expect((await fleet.ok('apis.listKeys', { apiId: 'helm-test' })).total).toBe(0);
  });

  it('`helm test` fails if refused, leaving no key', async () => {
    writeFileSync(join(temporary, 'wrong'), 'wrong-root-key-0123456789abcdef0123456789');
    await expect(walk({ ROOT_KEY_FILE: join(temporary, 'wrong') })).rejects.toThrow(/401/);
    await expect(walk({ VERIFIER_URL: 'http://127.0.0.1:1' })).rejects.toThrow(/fetch failed/);
    expect((await fleet.ok('apis.listKeys', { apiId: 'helm-test' })).total).toBe(0);
  });

  describe.skipIf(!helm)(`with helm${noHelm}`, () => {
    it('the pod of `helm test` reaches what it needs', () => {
      for (const mode of ['single', 'sentinel']) {
        const hooks = renderChart({ values: { 'redis.mode': mode, 'redis.tls.enabled': true } }).filter(
          isHook,
        );
        const of = (kind: string) => hooks.find((each) => each.kind === kind);
        const pod = of('Pod');
        expect(pod?.metadata.labels).toMatchObject(of('NetworkPolicy')?.['spec'].podSelector.matchLabels);
        expect(pod?.metadata.labels).toMatchObject({ 'keyfence/control-plane-client': 'true' });
      }
    });

    it('the notes walk as their comments say', async () => {
      for (const sample of [true, false]) {
        const values = { 'sample.enabled': sample };
        const notes = notesOf(values);
        const script = [...notes.matchAll(/^ {2}((?:kubectl|ROOT_KEY|call|CREATED|KEY).*)$/gm)]
          .map(([, line]) => line)
          .join('\n')
          .replace('http://127.0.0.1:$1', '$1');
        expect(notes).toContain('port-forward service/keyfence-control-plane 3000');
        expect(notes.includes('port-forward deployment/sample-api 3001')).toBe(sample);
        const answers = await answersOf(script);
        const codes = answers.flatMap(({ code }) => code ?? []);
        expect(codes).toEqual(sample ? ['VALID', 'DISABLED', 'VALID'] : []);
        const states = answers.flatMap(({ propagation }) => propagation?.state ?? []);
        expect(states).toEqual(['complete', 'complete', 'complete']);
      }
    });

    it('its README has only commands that helm takes', async () => {
      const readme = readFileSync(join(CHART, 'README.md'), 'utf8');
      const blocks = [...readme.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block]) => block ?? '');
      expect(blocks).toHaveLength(2);
      for (const block of blocks) {
        const { stdout } = await shell(block);
        expect(stdout).toMatch(/^kind: (?:Deployment|DaemonSet)$/m);
        // Verifiers on their nodes are of the same group as the control plane.
        expect(stdout).toMatch(/^ {2}REDIS_MODE: sentinel$/m);
        expect(stdout).toMatch(/^ {2}REDIS_URL: (redis:\S+?:26379,?){3}$/m);
        expect(stdout).toMatch(/^ {2}REDIS_REPLICAS: ['"]2['"]$/m);
      }
    });
  });

  /** The notes that helm prints after an installation. `install --dry-run` of Helm 3 asks a cluster for them; a template does not. */
  function notesOf(values: Readonly<Record<string, unknown>>): string {
    const chart = join(temporary, 'chart');
    cpSync(CHART, chart, { recursive: true, dereference: true });
    const text = readFileSync(join(CHART, 'templates/NOTES.txt'), 'utf8');
    writeFileSync(join(chart, 'templates/_notes.tpl'), `{{- define "notes" -}}\n${text}\n{{- end -}}`);
    writeFileSync(
      join(chart, 'templates/notes.yaml'),
      'apiVersion: v1\nkind: ConfigMap\nmetadata: { name: notes }\ndata: { notes: {{ include "notes" . | toJson }} }\n',
    );
    const all = renderChart({ values, chart });
    return all.find(({ metadata }) => metadata.name === 'notes')?.['data'].notes;
  }

  /** Runs a script in which kubectl knows the root key and nothing else, and helm installs nothing. */
  function shell(script: string) {
    const file = (name: string, text: string) => {
      writeFileSync(join(temporary, name), `#!/bin/sh\n${text}\n`);
      chmodSync(join(temporary, name), 0o755);
    };
    file('kubectl', `case "$*" in *"get secret"*) cat ${join(temporary, 'root-key')};; esac`);
    // The options of an installation, for which `template` needs no cluster.
    const template =
      'n=$#; while [ $n -gt 0 ]; do [ "$1" = install ] && set -- "$@" template || set -- "$@" "$1"; shift; n=$((n-1)); done';
    file(
      'helm',
      `case "$*" in *install*) ${template}; PATH="${process.env['PATH']}" exec ${helm} "$@" --kube-version 1.36.0;; esac`,
    );
    const path = [temporary, process.env['PATH']].join(delimiter);
    return run('sh', ['-euc', script], { cwd: ROOT, env: { ...process.env, PATH: path } });
  }

  /** The answers of the calls of a walk, in their order. */
  async function answersOf(script: string): Promise<{ code?: string; propagation?: { state: string } }[]> {
    const [controlPlane = '', verifier = ''] = [fleet.controlPlanes[0]?.address, fleet.verifiers[0]?.address];
    const { stdout } = await shell(
      script.replaceAll('call 3000', `call ${controlPlane}`).replaceAll('call 3001', `call ${verifier}`),
    );
    return stdout
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line));
  }
});
