import { parseSync } from 'rolldown/utils';
import type { Planting } from './planting.ts';

/** Any node of the syntax tree. */
interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  // biome-ignore lint/suspicious/noExplicitAny: each type of node has fields of its own
  readonly [field: string]: any;
}

const BINARY: Readonly<Record<string, readonly string[]>> = {
  '<': ['<=', '>'],
  '>': ['>=', '<'],
  '<=': ['<', '>'],
  '>=': ['>', '<'],
  '===': ['!=='],
  '!==': ['==='],
  '+': ['-'],
  '-': ['+'],
  '*': ['/'],
  '/': ['*'],
  '%': ['*'],
  '&': ['|'],
  '|': ['&'],
  '<<': ['>>'],
  '>>': ['<<'],
  '>>>': ['<<'],
  '&&': ['||'],
  '||': ['&&'],
  '??': ['&&'],
};
const ASSIGNED: Readonly<Record<string, string>> = {
  '+=': '-=',
  '-=': '+=',
  '*=': '/=',
  '|=': '&=',
  '&&=': '||=',
  '||=': '&&=',
  '??=': '=',
};
const METHODS: ReadonlyMap<string, string> = new Map([
  ['every', 'some'],
  ['some', 'every'],
  ['min', 'max'],
  ['max', 'min'],
  ['floor', 'ceil'],
  ['ceil', 'floor'],
  ['startsWith', 'endsWith'],
  ['endsWith', 'startsWith'],
  ['push', 'unshift'],
  ['shift', 'pop'],
  ['all', 'race'],
]);
/** Calls that are left out when they are taken away: what is called with. */
const DROPPED = new Set(['slice', 'trim', 'toLowerCase', 'filter', 'sort', 'toSorted', 'unref', 'reverse']);
/** Nobody promises what these write. */
const UNTOLD = /\blog(?:ger)?\.(?:debug|trace)$/i;
/** Fields that are only read by people. */
const PROSE = new Set(['description', 'examples', 'help', 'rule', 'summary']);
/** Parts of a tree that mean nothing when the program runs. */
const TYPES = /^(?:typeAnnotation|typeParameters|typeArguments|superTypeArguments|returnType|decorators)$/;

/** Mutants of a TypeScript file, found in its syntax tree. */
export function plantedInTypeScript(file: string, text: string): Planting[] {
  const { program, errors } = parseSync(file, text, {});
  if (errors.length > 0) throw new Error(`${file} cannot be parsed: ${errors[0]?.message}`);
  const found: Planting[] = [];
  walk(program as unknown as Node, [], (node, parents) => {
    for (const planting of around(node, parents, text)) found.push(planting);
  });
  return found;
}

function walk(node: Node, parents: readonly Node[], visit: (node: Node, parents: readonly Node[]) => void) {
  if (/^TS(?!AsExpression|NonNullExpression|SatisfiesExpression)/.test(node.type)) return;
  if (/^(?:ImportDeclaration|ExportAllDeclaration)$/.test(node.type)) return;
  if (node.type === 'Property' && PROSE.has(String(node['key']['name']))) return;
  if (node.type === 'CallExpression' && UNTOLD.test(nameOf(node['callee']))) return;
  visit(node, parents);
  const inner = [...parents, node];
  for (const [field, value] of Object.entries(node)) {
    if (TYPES.test(field)) continue;
    for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) walk(child, inner, visit);
  }
}

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && typeof (value as Node).type === 'string';

/** `a.#b.c` of a callee; empty where it is something else. */
function nameOf(node: Node): string {
  if (node.type === 'Identifier' || node.type === 'PrivateIdentifier') return String(node['name']);
  if (node.type === 'ThisExpression') return 'this';
  if (node.type !== 'MemberExpression' || node['computed']) return '';
  return `${nameOf(node['object'])}.${nameOf(node['property'])}`;
}

function* around(node: Node, parents: readonly Node[], text: string): Generator<Planting> {
  const source = ({ start, end }: Node) => text.slice(start, end);
  const whole = (to: string): Planting => ({ start: node.start, end: node.end, to });
  const between = (left: Node, right: Node, from: string, to: string): Planting => {
    const start = text.indexOf(from, left.end);
    if (start < 0 || start > right.start) throw new Error(`no ${from} in ${source(node)}`);
    return { start, end: start + from.length, to };
  };
  const parent = parents.at(-1);
  switch (node.type) {
    case 'BinaryExpression':
    case 'LogicalExpression':
      for (const to of BINARY[node['operator']] ?? [])
        if (!(node['operator'] === '+' && isText(node)))
          yield between(node['left'], node['right'], node['operator'], to);
      break;
    case 'AssignmentExpression': {
      const to = ASSIGNED[node['operator']];
      if (to) yield between(node['left'], node['right'], node['operator'], to);
      break;
    }
    case 'UpdateExpression':
      yield whole(
        source(node).includes('++') ? source(node).replace('++', '--') : source(node).replace('--', '++'),
      );
      break;
    case 'UnaryExpression':
      if (node['operator'] === '!' || node['operator'] === '-') yield whole(source(node['argument']));
      break;
    case 'ConditionalExpression':
    case 'IfStatement':
    case 'WhileStatement':
      for (const to of ['true', 'false'])
        if (!(node.type === 'WhileStatement' && to === 'true'))
          yield { start: node['test'].start, end: node['test'].end, to };
      break;
    case 'CallExpression':
      yield* aroundCall(node);
      break;
    case 'ExpressionStatement':
      if (mayGo(node, parents, text)) yield whole(';');
      break;
    case 'ThrowStatement':
      yield whole(';');
      break;
    case 'ReturnStatement':
      if (node['argument'] === null && parent?.type !== 'IfStatement') yield whole(';');
      break;
    case 'ContinueStatement':
    case 'BreakStatement':
      if (parent?.type !== 'SwitchCase') yield whole(';');
      break;
    case 'Literal':
      yield* aroundLiteral(node, parents, text);
      break;
    case 'TemplateLiteral':
      if (!/\s/.test(source(node).replace(/\$\{[^}]*\}/g, '')) && parent?.type !== 'TaggedTemplateExpression')
        yield whole("''");
      break;
    case 'Property':
    case 'SpreadElement':
      if (parent?.type === 'ObjectExpression') yield without(node, text);
      break;
    default:
  }
}

function* aroundCall(node: Node): Generator<Planting> {
  const { callee, arguments: given } = node as unknown as { callee: Node; arguments: Node[] };
  if (callee.type === 'Super') return;
  if (callee.type === 'MemberExpression' && !callee['computed']) {
    const property = callee['property'] as Node;
    const name = String(property['name']);
    const to = METHODS.get(name);
    if (to) yield { start: property.start, end: property.end, to };
    if (DROPPED.has(name)) yield { start: callee['object'].end, end: node.end, to: '' };
  }
  const [last, other] = [given.at(-1), given.at(-2)];
  // An argument that stands alone is rarely one that nobody would miss.
  if (last && other) yield { start: other.end, end: last.end, to: '' };
}

/** Tells whether a statement may be taken away: what a constructor keeps may not, since nothing works without. */
function mayGo(node: Node, parents: readonly Node[], text: string): boolean {
  const { expression } = node as unknown as { expression: Node };
  if (/^['"]/.test(text.slice(node.start, node.end))) return false;
  if (expression.type === 'CallExpression' && UNTOLD.test(nameOf(expression['callee']))) return false;
  if (expression.type === 'CallExpression' && expression['callee'].type === 'Super') return false;
  const inConstructor = parents.some(
    ({ type, kind }) => type === 'MethodDefinition' && kind === 'constructor',
  );
  return !(inConstructor && expression.type === 'AssignmentExpression');
}

function* aroundLiteral(node: Node, parents: readonly Node[], text: string): Generator<Planting> {
  const parent = parents.at(-1);
  const whole = (to: string): Planting => ({ start: node.start, end: node.end, to });
  const isName =
    (parent?.type === 'Property' && parent['key'] === node) ||
    (parent?.type === 'MemberExpression' && parent['property'] === node) ||
    /^(?:ImportExpression|ExportNamedDeclaration|TSLiteralType)$/.test(parent?.type ?? '');
  if (isName) return;
  const { value } = node as unknown as { value: unknown };
  if (node['regex']) {
    yield* aroundPattern(node, text);
  } else if (typeof value === 'boolean') {
    yield whole(String(!value));
  } else if (typeof value === 'number') {
    yield whole(value > 10 ? String(value * 10) : String(value + 1));
    if (value === 1) yield whole('0');
  } else if (typeof value === 'string' && value !== '' && !/\s/.test(value)) {
    yield whole("''");
  }
}

/** A pattern that is open at an end, or asks for one more or one less. */
function* aroundPattern(node: Node, text: string): Generator<Planting> {
  const { pattern, flags } = node['regex'] as { pattern: string; flags: string };
  const end = node.start + 1 + pattern.length;
  if (pattern.startsWith('^')) yield { start: node.start + 1, end: node.start + 2, to: '' };
  if (pattern.endsWith('$') && !pattern.endsWith('\\$')) yield { start: end - 1, end, to: '' };
  for (const [i, flag] of [...flags].entries())
    if (flag !== 'g') yield { start: end + 1 + i, end: end + 2 + i, to: '' };
  for (const match of pattern.matchAll(/(?<=\{(?:\d+,)?)\d+(?=\})/g)) {
    const start = node.start + 1 + match.index;
    yield { start, end: start + match[0].length, to: String(Number(match[0]) + 1) };
  }
  if (text[end] !== '/') throw new Error('a pattern is not where it should be');
}

/** An object without one of its fields. */
function without(node: Node, text: string): Planting {
  const comma = /^\s*,/.exec(text.slice(node.end));
  return { start: node.start, end: node.end + (comma?.[0].length ?? 0), to: '' };
}

/** Tells whether a sum joins texts. */
function isText(node: Node): boolean {
  if (node.type === 'TemplateLiteral') return true;
  if (node.type === 'Literal') return typeof node['value'] === 'string';
  return node.type === 'BinaryExpression' && (isText(node['left']) || isText(node['right']));
}
