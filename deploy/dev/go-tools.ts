// `npm run build:helm`, `npm run build:gitleaks` and `npm run build:crds` fetch these tools and files of the tests where Go
// is, once.
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { scriptArguments, wrongArguments } from './arguments.ts';

/** A command that Go can build: which module it is in, and at which version. */
export interface GoTool {
  readonly name: string;
  readonly module: string;
  readonly version: string;
  readonly package: string;
}

/** The releases of Kubernetes that tests start: the newest one and the oldest that is claimed. */
export const RELEASES = ['v1.36.3', 'v1.29.6'] as const;

/** Parts of a release that the proxy does not have; their neighbours differ in nothing that is built here. */
const PARTS: Record<string, Record<string, string>> = {
  'v1.29.6': { 'k8s.io/endpointslice': 'v0.29.5', 'k8s.io/kube-controller-manager': 'v0.29.5' },
};

/** Helm that tests and `npm run test:kubernetes` render charts with. */
export const HELM: GoTool = {
  name: 'helm',
  module: 'helm.sh/helm/v4',
  version: 'v4.3.1',
  package: 'helm.sh/helm/v4/cmd/helm',
};
/** The scanner that looks for keys of ours. */
export const GITLEAKS: GoTool = {
  name: 'gitleaks',
  module: 'github.com/zricethezav/gitleaks/v8',
  version: 'v8.30.1',
  package: 'github.com/zricethezav/gitleaks/v8',
};
export const ETCD: GoTool = {
  name: 'etcd',
  module: 'go.etcd.io/etcd/server/v3',
  version: 'v3.6.8',
  package: 'go.etcd.io/etcd/server/v3',
};
/** A command of one release of Kubernetes: `kube-apiserver`, `kubectl` and so on. */
export const kubernetesTool = (name: string, version: string): GoTool => ({
  name,
  module: KUBERNETES,
  version,
  package: `${KUBERNETES}/cmd/${name}`,
});

const KUBERNETES = 'k8s.io/kubernetes';
const STAMP = 'k8s.io/component-base/version';

/** The definitions of kinds (CRDs) that gateways bring, in the modules of their makers. */
const DEFINITIONS = [
  {
    module: 'sigs.k8s.io/gateway-api@v1.6.3',
    files: ['gateways', 'httproutes', 'referencegrants'].map(
      (kind) => `config/crd/experimental/gateway.networking.k8s.io_${kind}.yaml`,
    ),
  },
  {
    module: 'github.com/envoyproxy/gateway@v1.9.1',
    files: ['charts/gateway-helm/charts/crds/crds/generated/gateway.envoyproxy.io_securitypolicies.yaml'],
  },
  { module: 'istio.io/api@v1.31.4', files: ['kubernetes/customresourcedefinitions.gen.yaml'] },
] as const;

/** File with all of these definitions, once they were fetched. */
export const definitionsPath = builtPath({
  name: 'gateway-crds',
  version: DEFINITIONS.map(({ module }) => module.split('@')[1]).join('-'),
});

/** Fetches the definitions unless that was done before, from Go's module proxy, and returns their file. */
export function ensureDefinitions(): string {
  if (existsSync(definitionsPath)) return definitionsPath;
  const texts = DEFINITIONS.flatMap(({ module, files }) => {
    const output = execFileSync('go', ['mod', 'download', '-json', module], {
      ...{ cwd: tmpdir(), encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] },
      env: { ...process.env, GOFLAGS: '-mod=mod' },
    });
    const { Dir } = JSON.parse(output) as { Dir: string };
    return files.map((file) => readFileSync(join(Dir, file), 'utf8'));
  });
  mkdirSync(join(definitionsPath, '..'), { recursive: true });
  writeFileSync(`${definitionsPath}.${process.pid}`, texts.join('\n---\n'));
  renameSync(`${definitionsPath}.${process.pid}`, definitionsPath);
  return definitionsPath;
}

/** Path of a tool that was built: outside of the project, for all its clones. */
export function builtPath({ name, version }: Pick<GoTool, 'name' | 'version'>): string {
  const cache = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
  return join(cache, 'keyfence-kubernetes', `${name}-${version}`);
}

export const hasGo = () => spawnSync('go', ['version']).status === 0;

/** Builds a tool unless that was done before, from Go's module proxy, and returns its path. Takes minutes. */
export function ensureTool(tool: GoTool): string {
  const path = builtPath(tool);
  if (existsSync(path)) return path;
  const folder = mkdtempSync(join(tmpdir(), 'keyfence-go-'));
  try {
    const go = (...args: string[]) =>
      execFileSync('nice', ['-n', '10', 'go', ...args], {
        cwd: folder,
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...process.env, GOFLAGS: '-mod=mod -buildvcs=false -trimpath', CGO_ENABLED: '0' },
      });
    const downloaded = JSON.parse(go('mod', 'download', '-json', `${tool.module}@${tool.version}`));
    const goMod = readFileSync(downloaded.GoMod as string, 'utf8');
    writeFileSync(join(folder, 'go.mod'), moduleOf(tool, goMod));
    mkdirSync(join(path, '..'), { recursive: true });
    const [major = '', minor = ''] = tool.version.replace('v', '').split('.');
    const stamps = { gitVersion: tool.version, gitMajor: major, gitMinor: minor };
    // Kubernetes is not told its version by Go.
    const flags = Object.entries(tool.module === KUBERNETES ? stamps : {}).map(
      ([name, value]) => `-X ${STAMP}.${name}=${value}`,
    );
    // Without the cloud providers, which are in old releases still.
    go(
      'build',
      '-tags',
      'providerless',
      '-ldflags',
      ['-s -w', ...flags].join(' '),
      '-o',
      `${path}.${process.pid}`,
      tool.package,
    );
    renameSync(`${path}.${process.pid}`, path);
    return path;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/**
 * A module that needs the tool's alone. Kubernetes' own replaces its parts by folders of its source; outside of it they
 * are modules, v0.36.3 for v1.36.3.
 */
function moduleOf({ module, version }: GoTool, goMod: string): string {
  const [goVersion = ''] = goMod.match(/^go .*$/m) ?? [];
  const parts = new Set(
    [...goMod.matchAll(/^\s*(?:replace )?(\S+) => \.\/staging\//gm)].map(([, part]) => part),
  );
  const replaced = [...parts].map((part = '') => {
    const at = PARTS[version]?.[part] ?? version.replace('v1.', 'v0.');
    return `replace ${part} => ${part} ${at}`;
  });
  return ['module tool', goVersion, `require ${module} ${version}`, ...replaced, ''].join('\n');
}

const TOOLS = { helm: HELM, gitleaks: GITLEAKS } as const;
const USAGE = `npm run build:helm | npm run build:gitleaks | npm run build:crds

Builds helm ${HELM.version} for the tests of the chart, or gitleaks ${GITLEAKS.version} for those of its rules, or fetches the
definitions of gateways' kinds, where Go is and that was not done before. Takes up to two minutes.`;

if (import.meta.main) {
  const { positionals } = scriptArguments(USAGE, { allowPositionals: true });
  const [name = 'helm'] = positionals;
  const tool = TOOLS[name as keyof typeof TOOLS];
  if ((tool === undefined && name !== 'crds') || positionals.length > 1)
    wrongArguments(`${name}: is not such a tool`, USAGE);
  if (!hasGo()) wrongArguments('there is no Go on PATH', USAGE);
  console.log(tool === undefined ? ensureDefinitions() : ensureTool(tool));
}
