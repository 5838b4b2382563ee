import type { FastifySchemaValidationError } from 'fastify';
import { MOMENT_PATTERN, UNIX_MS_MIN, UNIX_MS_RULE } from '#shared/rules/unix-ms.ts';
import { API_ACTIONS, PERMISSION_PATTERN, ROOT_ACTIONS } from '../callers/root-permissions.ts';
import { nearest } from './nearest.ts';

type Fault = Pick<FastifySchemaValidationError, 'keyword' | 'instancePath' | 'params' | 'message'> & {
  readonly schemaPath?: string;
};

/** The schema and the value of a validation, from which an error takes its advice. */
interface Validated {
  readonly schema?: unknown;
  readonly value?: unknown;
}

/** The maximum number of faults that one error names, and of their characters. */
const FAULTS_MAX = { count: 10, characters: 4000 };

/**
 * Returns the faults of a validation, each as `field: rule` or `field: rule; fix`, one for each field. Never contains
 * a value that was sent, which might be a secret, except the id of an API in a permission's nearest right form.
 */
export function faultTexts(
  faults: readonly Fault[] | null | undefined,
  { whole, part, ...validated }: { whole: string; part: string } & Validated,
): string[] {
  const texts = new Map<string, string>();
  const unions = new Set<string>();
  let characters = 0;
  for (const fault of faults ?? []) {
    // All alternatives of a union are refused: the first one speaks for them.
    const [, union] = /^(.*?)\/anyOf\b/.exec(fault.schemaPath ?? '') ?? [];
    const place = `${union} ${fault.instancePath}`;
    if (union !== undefined && [...unions].some((path) => isBelow(place, path) || isBelow(path, place)))
      continue;
    if (union !== undefined) unions.add(place);
    const text = textOf(faults ?? [], fault, { whole, part, ...validated });
    const [field = ''] = text.split(': ');
    if (texts.has(field)) continue;
    characters += text.length;
    if (texts.size > 0 && (texts.size >= FAULTS_MAX.count || characters > FAULTS_MAX.characters)) break;
    texts.set(field, text);
  }
  return texts.size > 0 ? [...texts.values()] : [`${whole}: is wrong`];
}

const isBelow = (path: string, parent: string) => path === parent || path.startsWith(`${parent}/`);

function textOf(
  faults: readonly Fault[],
  fault: Fault,
  { whole, part, schema, value }: { whole: string; part: string } & Validated,
): string {
  const path = fault.instancePath.slice(1).replaceAll('/', '.');
  const field = (name: unknown) => (path ? `${path}.${String(name)}` : String(name));
  if (fault.keyword === 'required') return `${field(fault.params['missingProperty'])}: required`;
  if (fault.keyword === 'additionalProperties') {
    const name = String(fault.params['additionalProperty']);
    const names = Object.keys(Object(at(schema, fault.schemaPath ?? '', -1)?.['properties']));
    return `${field(name)}: unknown ${part}${didYouMean(nearest(name, names))}`;
  }
  const sent = at(value, fault.instancePath, 0);
  if (fault.keyword === 'const' || fault.keyword === 'enum') {
    const allowed = allowedBy(faults, fault);
    const near = typeof sent === 'string' ? nearest(sent, allowed.map(String)) : undefined;
    const list = allowed.map((each) => JSON.stringify(each)).join(' or ');
    return `${path || whole}: must be ${list}${didYouMean(near)}`;
  }
  const rule = `${path || whole}: ${fault.message ?? 'is wrong'}`;
  if (fault.keyword === 'type' && typeof sent === 'string') return `${rule}${unquoted(fault, sent)}`;
  const { limit, pattern } = fault.params;
  if (pattern === MOMENT_PATTERN || (fault.keyword === 'minimum' && limit === UNIX_MS_MIN))
    return `${path}: ${UNIX_MS_RULE}`;
  if (fault.keyword === 'pattern' && pattern === PERMISSION_PATTERN) {
    const near = typeof sent === 'string' ? nearestPermission(sent) : undefined;
    return `${path}: must be *, api.<apiId or *>.<action> or root.*.<action>${didYouMean(near)}`;
  }
  return rule;
}

const didYouMean = (word: string | undefined) => (word === undefined ? '' : `; did you mean ${word}?`);

/** Returns the advice for a number or a boolean that was sent as a string. */
function unquoted({ params }: Fault, sent: string): string {
  const isNumber = /^(integer|number)$/.test(String(params['type'])) && /^-?\d+(\.\d+)?$/.test(sent);
  const isBoolean = params['type'] === 'boolean' && /^(true|false)$/i.test(sent);
  return isNumber || isBoolean ? '; send it without quotes' : '';
}

/** Returns the permission of root keys that is nearest to a wrong one. */
function nearestPermission(sent: string): string | undefined {
  const [, apiId = '*'] = /^api\.([^.]+)\./.exec(sent) ?? [];
  const candidates = [
    ...API_ACTIONS.map((action) => `api.${apiId}.${action}`),
    ...ROOT_ACTIONS.map((action) => `root.*.${action}`),
  ];
  const near = nearest(sent, candidates);
  return near !== undefined && new RegExp(PERMISSION_PATTERN).test(near) ? near : undefined;
}

/** Lists the values allowed at the place of a fault; each alternative of a union is a separate fault. */
function allowedBy(faults: readonly Fault[], { keyword, params, instancePath }: Fault): unknown[] {
  if (keyword === 'enum') return params['allowedValues'] as unknown[];
  return faults
    .filter((fault) => fault.keyword === 'const' && fault.instancePath === instancePath)
    .map((fault) => fault.params['allowedValue']);
}

/**
 * Returns what is at a path such as `/a/0` or `#/a/b`.
 * @param up 0, or -1 for what contains it
 */
function at(whole: unknown, path: string, up: 0 | -1): Record<string, unknown> | undefined {
  const steps = path.split('/').slice(1);
  let place: unknown = whole;
  for (const step of up === 0 ? steps : steps.slice(0, up)) {
    const name = decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~');
    place = Object.hasOwn(Object(place), name) ? (place as Record<string, unknown>)[name] : undefined;
  }
  return place as Record<string, unknown> | undefined;
}
