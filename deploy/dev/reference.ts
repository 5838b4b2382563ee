import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { createProgram } from '../../control-plane/cli/program.ts';
import { operations } from '../../control-plane/operations.ts';
import { isGet, type Operation, pathOf } from '../../control-plane/serve/operation.ts';
import { operationsV2 } from '../../control-plane/unkey-v2/index.ts';
import { commandOperations } from './command-operations.ts';
import { verifierDocument } from './verifier-openapi.ts';

/** The parts of a JSON schema that the reference shows. */
interface Schema {
  readonly type?: string;
  readonly anyOf?: readonly Schema[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly description?: string;
  readonly items?: Schema;
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly default?: unknown;
}

interface Entry {
  readonly method: string;
  readonly path: string;
  readonly summary: string;
  readonly description: string;
  readonly request: Schema;
  readonly response: Schema;
  readonly errors: readonly string[];
  /** Type of the webhook event that is sent after the operation. */
  readonly event?: string;
  readonly example: unknown;
  readonly answer: unknown;
}

interface Content {
  readonly content: { readonly 'application/json': { readonly schema: Schema; readonly example?: unknown } };
}

const escaped = (text: string) =>
  text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replace(/`([^`]*)`/g, '<code>$1</code>');

/**
 * Returns the reference of all operations of both processes, and of the options of all commands, as a page for
 * browsers that needs no server.
 */
export function referencePage(): string {
  const answers = JSON.parse(
    readFileSync(join(import.meta.dirname, '../../control-plane/serve/examples.json'), 'utf8'),
  ) as Record<string, unknown>;
  const sections = {
    Verifier: verifierEntries(),
    'Control plane: /v1/': (operations as readonly Operation[]).map((each) => entryOf(each, answers)),
    'Control plane: /v2/': (operationsV2 as readonly Operation[]).map((each) => entryOf(each, answers)),
  };
  const body = Object.entries(sections).flatMap(([title, entries]) => [
    `<h2>${title}</h2>`,
    ...entries.map(sectionOf),
  ]);
  const commands = commandsOf(createProgram(undefined, commandOperations()), '');
  return [
    '<!doctype html>',
    '<html lang="en"><meta charset="utf-8"><title>Keyfence reference</title>',
    '<style>body{font:15px/1.5 system-ui;max-width:60em;margin:2em auto;padding:0 1em}summary{cursor:pointer}td{vertical-align:top;padding:.1em 1em .1em 0}pre{background:#eee;color:#111;padding:.7em;overflow:auto}details{margin:.4em 0}</style>',
    '<h1>Keyfence reference</h1>',
    '<p>Written by <code>npm run docs</code>. Calls of the control plane need <code>Authorization: Bearer &lt;root key&gt;</code>. Besides the errors that are listed, every call can get BAD_REQUEST, UNAUTHORIZED, INSUFFICIENT_PERMISSIONS, RATE_LIMITED, INTERNAL_SERVER_ERROR and SERVICE_UNAVAILABLE.</p>',
    ...body,
    '<h2>Options of commands</h2>',
    ...commands,
    '</html>',
    '',
  ].join('\n');
}

function entryOf(operation: Operation, answers: Readonly<Record<string, unknown>>): Entry {
  const { summary, description, permissions, request, response, errors, example, event } = operation;
  const path = pathOf(operation);
  return {
    ...{ method: isGet(operation) ? 'GET' : 'POST', path, summary, request, response, errors, example },
    description: `${description} Needs the permission \`${permissions.join(' and ')}\`.`,
    answer: answers[path],
    ...(event ? { event } : {}),
  };
}

/** Returns the operations of verifiers that are a POST. */
function verifierEntries(): Entry[] {
  const paths = verifierDocument.paths as unknown as Record<
    string,
    { post?: { summary: string; description: string; requestBody: Content; responses: { 200: Content } } }
  >;
  return Object.entries(paths).flatMap(([path, { post }]) => {
    if (!post) return [];
    const [{ schema: request, example } = {}] = Object.values(post.requestBody.content);
    if (!request || !example) return [];
    const { schema: response, example: answer } = post.responses[200].content['application/json'];
    const { summary, description } = post;
    return [{ method: 'POST', path, summary, description, request, response, errors: [], example, answer }];
  });
}

function sectionOf(entry: Entry): string {
  const { method, path, summary, description, request, response, errors, example, answer, event } = entry;
  const json = (value: unknown) =>
    `<pre>${escaped(JSON.stringify(value, null, 1) ?? 'npm run examples has not written it yet')}</pre>`;
  return [
    `<details id="${path.slice(1)}"><summary><b>${method} ${path}</b> ${escaped(summary)}</summary>`,
    `<p>${escaped(description)}</p>`,
    `<h4>Request</h4>${fieldsTable(request)}${json(example)}`,
    `<h4>Answer</h4>${fieldsTable(response)}${json(answer)}`,
    ...(errors.length > 0 ? [`<h4>Errors</h4><p>${errors.join(', ')}</p>`] : []),
    ...(event ? [`<h4>Event for webhooks</h4><p><code>${event}</code></p>`] : []),
    '</details>',
  ].join('\n');
}

function fieldsTable(schema: Schema): string {
  const rows = fieldsOf(schema, '').map(
    ([name, type, text]) => `<tr><td><code>${name}</code><td>${escaped(type)}<td>${escaped(text)}`,
  );
  return `<table>\n${rows.join('\n')}\n</table>`;
}

/** Returns name, type and meaning of each field, and of the fields within it. */
function fieldsOf(schema: Schema, above: string): [name: string, type: string, text: string][] {
  const { properties = {}, required = [] } = schema;
  return Object.entries(properties).flatMap(([name, field]) => {
    const isNeeded = required.includes(name) && field.default === undefined;
    const [forms, inner] = [field.anyOf ?? [field], `${above}${name}`];
    const within = forms.flatMap((form) => {
      const [item, path] = form.type === 'array' ? [form.items ?? {}, `${inner}[].`] : [form, `${inner}.`];
      return fieldsOf(item, path);
    });
    const row: [string, string, string] = [
      inner,
      `${typeOf(field)}${isNeeded ? '' : ', optional'}`,
      field.description ?? '',
    ];
    return [row, ...within];
  });
}

function typeOf({ type, anyOf, enum: values, const: value, items }: Schema): string {
  if (anyOf) return [...new Set(anyOf.map(typeOf))].join(' or ');
  if (value !== undefined) return JSON.stringify(value);
  if (values) return values.map((each) => JSON.stringify(each)).join(' or ');
  return type === 'array' ? `list of ${typeOf(items ?? {})}` : (type ?? 'any');
}

function commandsOf(command: Command, above: string): string[] {
  const name = `${above}${command.name()}`;
  if (command.commands.length > 0) return command.commands.flatMap((child) => commandsOf(child, `${name} `));
  const rows = command.options.map(
    ({ flags, description }) => `<tr><td><code>${escaped(flags)}</code><td>${escaped(description)}`,
  );
  const table = rows.length > 0 ? `<table>\n${rows.join('\n')}\n</table>` : '';
  return [`<details><summary><b>${name}</b> ${escaped(command.summary())}</summary>${table}</details>`];
}
