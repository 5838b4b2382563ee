import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Programs without which tests are skipped, each with how to get it: Debian's package, or a command of this project. */
const SOURCES = {
  nginx: { package: 'nginx' },
  haproxy: { package: 'haproxy' },
  caddy: { package: 'caddy' },
  // `.ci/run` keeps these three in node_modules.
  'Caddy 2.8': { command: '.ci/run' },
  'Caddy 2.11': { command: '.ci/run' },
  Traefik: { command: '.ci/run' },
  envoy: { command: '.ci/run' },
  chromium: { package: 'chromium-headless-shell' },
  python3: { package: 'python3' },
  prometheus: { package: 'prometheus' },
  promtool: { package: 'prometheus' },
  'docker-compose': { package: 'docker-compose' },
  'systemd-analyze': { package: 'systemd' },
  'systemd-sysusers': { package: 'systemd' },
  'ssh-keygen': { package: 'openssh-client' },
  spin: { package: 'spin' },
  gcc: { package: 'gcc' },
  sh: { package: 'dash' },
  bash: { package: 'bash' },
  zsh: { package: 'zsh' },
  fish: { package: 'fish' },
  script: { package: 'bsdutils' },
  buildah: { package: 'buildah' },
  mmdebstrap: { package: 'mmdebstrap' },
  go: { package: 'golang-go' },
  helm: { command: 'npm run build:helm' },
  "gateways' CRDs": { command: 'npm run build:crds' },
  gitleaks: { command: 'npm run build:gitleaks' },
  trufflehog: { command: 'brew install trufflehog' },
  kustomize: { package: 'golang-go' },
  kubectl: { package: 'kubernetes-client' },
  unshare: { package: 'util-linux' },
  nft: { package: 'nftables' },
  java: { package: 'default-jre-headless' },
  mvn: { package: 'maven' },
  dotnet: { package: 'dotnet-sdk-8.0' },
  gradle: { package: 'gradle' },
  javac: { package: 'default-jdk-headless' },
  ruby: { package: 'ruby' },
  php: { package: 'php-cli' },
  'php-curl': { package: 'php-curl' },
  'libwww-perl': { package: 'libwww-perl' },
  curl: { package: 'curl' },
  wget: { package: 'wget' },
  ab: { package: 'apache2-utils' },
  // `.ci/run` keeps them in node_modules.
  'python3 requests': { command: '.ci/run' },
  'python3 httpx': { command: '.ci/run' },
  'python3 urllib3': { command: '.ci/run' },
  'python3 http.client': { package: 'python3' },
  'python3 aiohttp': { command: '.ci/run' },
  'python3 pycurl': { command: '.ci/run' },
  'python3 unkey.py': { command: '.ci/run' },
  'python3 pyjwt': { command: '.ci/run' },
  'python3 mcp': { command: '.ci/run' },
  'python3 schemathesis': { command: '.ci/run' },
  "Java's libraries": { command: '.ci/run' },
  "Rust's libraries": { command: '.ci/run' },
  OpenTelemetry: { command: '.ci/run' },
  'Node 22': { command: '.ci/run' },
} as const satisfies Record<string, { package: string } | { command: string }>;

export type Program = keyof typeof SOURCES;

/** Ends the name of tests that are skipped for want of programs; '' where nothing is missing. */
export function lacking(programs: readonly Program[]): string {
  return programs.length > 0 ? ` (skipped: lacks ${programs.join(', ')})` : '';
}

/** As `lacking`, for those of the programs that are not in the search path, each under its own name. */
export function skippedWithout(...programs: Program[]): string {
  const folders = (process.env['PATH'] ?? '').split(delimiter);
  return lacking(
    programs.filter((program) => !folders.some((folder) => isExecutable(join(folder, program)))),
  );
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The programs that the full name of a skipped test says are missing. */
function lackedBy(name: string): Program[] {
  return [...name.matchAll(/\(skipped: lacks ([^)]+)\)/g)].flatMap(([, list = '']) =>
    list.split(', ').filter((word): word is Program => word in SOURCES),
  );
}

/** The command that installs programs. */
function installing(programs: readonly Program[]): string {
  const sources = programs.map((program) => SOURCES[program]);
  const packages = sources.flatMap((source) => ('package' in source ? [source.package] : []));
  const commands = sources.flatMap((source) => ('command' in source ? [source.command] : []));
  const apt = packages.length > 0 ? [`sudo apt-get install ${[...new Set(packages)].sort().join(' ')}`] : [];
  return [...apt, ...new Set(commands)].join(' && ');
}

/** One line of what a machine lacks, for the end of a run; '' where no test was skipped for want of a program. */
export function missingLine(skippedTests: readonly string[]): string {
  const lacked = skippedTests.map(lackedBy).filter((programs) => programs.length > 0);
  const programs = [...new Set(lacked.flat())].sort();
  if (programs.length === 0) return '';
  const tests = lacked.length === 1 ? '1 test was' : `${lacked.length} tests were`;
  return `${tests} skipped, because this machine has no ${programs.join(', ')}. To install: ${installing(programs)}`;
}
