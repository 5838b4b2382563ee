import { parse } from 'yaml';
import type { Manifest } from './kustomize.ts';

/** Labels and annotations that helm adds. Kustomize has no releases. */
const MARKS = ['app.kubernetes.io/instance', 'app.kubernetes.io/managed-by', 'helm.sh/chart'];
/** The chart starts pods again when what they read has changed; kustomize gives the ConfigMap another name. */
const CHECKSUM = 'checksum/';
const HASH = /^(keyfence-[\w-]+|sample-api)-[a-z0-9]{10}$/;

/**
 * Objects by kind and name, without what kustomize and helm do each in its own way and without their namespace, so that
 * those of both can be compared.
 */
export function likeness(all: readonly Manifest[]): Record<string, unknown> {
  const entries = all
    .filter(({ kind }) => kind !== 'Namespace')
    .map((object): [string, unknown] => {
      const plain = plainOf(object) as Manifest;
      const { namespace: _, labels, ...named } = plain.metadata;
      const metadata = { ...named, ...(plain.kind === 'Service' ? { labels } : ownLabels(labels)) };
      return [`${plain.kind} ${metadata.name}`, { ...plain, metadata }];
    });
  return Object.fromEntries(entries);
}

/** Those by which nothing finds the object. A ServiceMonitor finds its Service by the others. */
function ownLabels(labels: Record<string, string> = {}): { labels?: Record<string, string> } {
  const own = Object.entries(labels).filter(([name]) => !name.startsWith('app.kubernetes.io/'));
  return own.length > 0 ? { labels: Object.fromEntries(own) } : {};
}

function plainOf(value: unknown): unknown {
  if (typeof value === 'string')
    return value.startsWith('(has(object.') ? celOf(value) : value.replace(HASH, '$1');
  if (Array.isArray(value)) return value.map(plainOf);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([name]) => !MARKS.includes(name) && !name.startsWith(CHECKSUM))
      .map(([name, inner]): [string, unknown] => [name, plainOf(inner)])
      .map(([name, inner]) => [name, name === 'volumes' ? byName(inner as { name: string }[]) : inner])
      // Nothing but marks was in it.
      .filter(([name, inner]) => !(isEmpty(inner) && (name === 'labels' || name === 'annotations'))),
  );
}

/** In any order they are the same to a pod. */
const byName = (volumes: { name: string }[]) => volumes.toSorted((a, b) => a.name.localeCompare(b.name));

/** The patches of an admission policy. Objects of CEL, without their types, are YAML. */
function celOf(expression: string): unknown {
  const list = expression.slice(expression.lastIndexOf(']) + [') + 5);
  return parse(list.replaceAll(/(JSONPatch|Object[\w.]*)\{/g, '{'));
}

const isEmpty = (value: unknown) =>
  typeof value === 'object' && value !== null && Object.keys(value).length === 0;
