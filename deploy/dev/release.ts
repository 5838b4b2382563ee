// `npm version 0.2.0` runs this after it has changed package.json, and then commits and tags the result.
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { scriptArguments } from './arguments.ts';

const USAGE = `npm version NUMBER   (runs node deploy/dev/release.ts)

Gives the changelog, the images of deploy/ and the chart the number that package.json has, and commits and tags it.`;

const ROOT = join(import.meta.dirname, '..', '..');
/**
 * The version number in places where it is Keyfence's: after an image's name, or as the value of one of these
 * fields.
 */
const VERSION_LINE =
  /((?:keyfence:|VERSION: |newTag: |\/version: |^version: |^appVersion: ))\d+\.\d+\.\d+(?:-[\w.]+)?(?![\w.])/gm;

/** Returns the changelog with everything unreleased under a new heading. */
function releaseSection(changelog: string, version: string, day: string): string {
  const [before, after, ...more] = changelog.split('## [Unreleased]\n');
  if (before === undefined || after === undefined || more.length > 0)
    throw new Error('CHANGELOG.md: one heading "## [Unreleased]" is needed');
  if (/^\s*(?:## |$)/.test(after)) throw new Error('CHANGELOG.md: nothing is unreleased');
  return `${before}## [Unreleased]\n\n## [${version}] - ${day}\n${after}`;
}

scriptArguments(USAGE, {});
const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
const change = (file: string, by: (text: string) => string) =>
  writeFileSync(join(ROOT, file), by(readFileSync(join(ROOT, file), 'utf8')));

change('CHANGELOG.md', (text) => releaseSection(text, version, new Date().toISOString().slice(0, 10)));
const files = execFileSync('git', ['ls-files', 'deploy/*.yaml', 'deploy/*.md'], {
  cwd: ROOT,
  encoding: 'utf8',
});
for (const file of files.trim().split('\n'))
  change(file, (text) => text.replace(VERSION_LINE, (_, before: string) => before + version));
