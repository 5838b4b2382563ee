import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { createProgram } from '../../control-plane/clients/cli/program.ts';
import { typesIn } from '../../control-plane/core/schema/event-types.ts';
import { isGet, type Operation, pathOf } from '../../control-plane/core/serve/operation.ts';
import { pageStyle } from '../../control-plane/core/serve/pages/page.ts';
import { operations } from '../../control-plane/operations.ts';
import { operationsV2 } from '../../control-plane/unkey-v2/index.ts';
import { commandOperations } from './command-operations.ts';
import { verifierDocument } from './verifier-openapi.ts';

const DASHBOARD_STYLE = readFileSync(
  join(import.meta.dirname, '../../control-plane/clients/dashboard/assets/app.css'),
  'utf8',
);

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
  readonly of: keyof typeof ADDRESSES;
  readonly method: string;
  readonly path: string;
  readonly summary: string;
  readonly description: string;
  readonly request: Schema;
  readonly response: Schema;
  readonly errors: readonly string[];
  /** Types of the webhook event that is sent after the operation. */
  readonly events?: readonly string[];
  readonly example: unknown;
  /** True = the body is a form. */
  readonly isForm?: boolean;
  readonly answer: unknown;
}

const JSON_TYPE = 'application/json';
interface Content {
  readonly content: Readonly<Record<string, { readonly schema: Schema; readonly example?: unknown }>>;
}

const escapedCode = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
const escaped = (text: string) => escapedCode(text).replace(/`([^`]*)`/g, '<code>$1</code>');

/**
 * Returns the reference of all operations of both processes, and of the options of all commands, as a page for
 * browsers that needs no server. The control plane serves it at /docs.
 */
export function referencePage(): string {
  const answers = JSON.parse(
    readFileSync(join(import.meta.dirname, '../../control-plane/core/serve/examples.json'), 'utf8'),
  ) as Record<string, unknown>;
  const sections = {
    Verifier: verifierEntries(),
    'Control plane, /v1/': (operations as readonly Operation[]).map((each) => entryOf(each, answers)),
    'Control plane, /v2/': (operationsV2 as readonly Operation[]).map((each) => entryOf(each, answers)),
  };
  const links = Object.entries(sections).flatMap(([title, entries]) => [
    `<h2>${title}</h2>`,
    ...entries.map(
      ({ path }) =>
        `<a href="#${path.slice(1)}">${title === 'Verifier' ? path.slice(1) : path.replace(/^\/v\d\//, '')}</a>`,
    ),
  ]);
  const text = Object.entries(sections).flatMap(([title, entries]) => [
    `<h2>${title}</h2>`,
    ...entries.map(sectionOf),
  ]);
  const asset = (name: string) =>
    readFileSync(join(import.meta.dirname, '../../control-plane/core/serve/pages', name), 'utf8');
  return [
    '<!doctype html>',
    '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Keyfence reference</title>',
    `<style>${pageStyle(DASHBOARD_STYLE)}\n${asset('reference.css')}</style></head>`,
    '<body><div class="keyfence reference">',
    `<nav aria-label="Operations"><input type="search" aria-label="Search" placeholder="Search ( / )"><small role="status"></small>${links.join('\n')}<h2>Commands</h2><a href="#commands">Options of commands</a></nav>`,
    '<main class="keyfence reference-text"><h1>Reference</h1>',
    '<p>Set <code>ROOT_KEY</code> and <code>KEY</code> in your shell; the calls then run as you copy them. Besides the errors that are listed, every call can get BAD_REQUEST, UNAUTHORIZED, INSUFFICIENT_PERMISSIONS, RATE_LIMITED, INTERNAL_SERVER_ERROR and SERVICE_UNAVAILABLE. For machines: <a href="/openapi.json">openapi.json</a> and <a href="/openapi-v2.json">openapi-v2.json</a>.</p>',
    ...text,
    '<h2 id="commands">Options of commands</h2>',
    ...commandsOf(createProgram(undefined, commandOperations()), ''),
    '</main></div>',
    `<script>${asset('reference.js')}</script></body></html>`,
    '',
  ].join('\n');
}

function entryOf(operation: Operation, answers: Readonly<Record<string, unknown>>): Entry {
  const { summary, description, permissions, request, response, errors, example, event } = operation;
  const path = pathOf(operation);
  return {
    of: 'controlPlane',
    ...{ method: isGet(operation) ? 'GET' : 'POST', path, summary, request, response, errors, example },
    description: `${description} Needs the permission \`${permissions.join(' and ')}\`.`,
    answer: answers[path],
    events: typesIn(event),
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
    const [[type, { schema: request, example }] = ['', {} as Partial<Content['content'][string]>]] =
      Object.entries(post.requestBody.content);
    if (!request || !example) return [];
    const { schema: response = {}, example: answer } = post.responses[200].content[JSON_TYPE] ?? {};
    const { summary, description } = post;
    const about = {
      of: 'verifier',
      method: 'POST',
      path,
      summary,
      description,
      isForm: type !== JSON_TYPE,
    } as const;
    return [{ ...about, request, response, errors: [], example, answer }];
  });
}

/** The address of each process that `npm start` starts. */
const ADDRESSES = { verifier: 'http://127.0.0.1:3001', controlPlane: 'http://127.0.0.1:3000' };

/** The key in the examples of verifiers. */
const EXAMPLE_KEY = 'shop_2VfUX9rXq0bYt6yqkq7Z4o3dT1bQe';

/** Returns the command that sends the example. */
function callOf({ method, path, example, of, isForm }: Entry): string {
  const quote = (text: string) => `'${text.replaceAll("'", "'\\''").replaceAll(EXAMPLE_KEY, `'"$KEY"'`)}'`;
  // A holder's call is made with the key itself.
  const bearer = of !== 'verifier' ? '$ROOT_KEY' : path.endsWith('.getSelf') ? '$KEY' : undefined;
  const key = bearer ? ` -H "authorization: Bearer ${bearer}"` : '';
  if (isForm)
    return `curl -sw '\\n' ${ADDRESSES[of]}${path}${key} -d ${quote(new URLSearchParams(example as Record<string, string>).toString())}`;
  if (method === 'POST')
    return `curl -sw '\\n' ${ADDRESSES[of]}${path}${key} -H 'content-type: application/json' -d ${quote(JSON.stringify(example))}`;
  const query = new URLSearchParams(example as Record<string, string>).toString();
  return `curl -sw '\\n' ${quote(`${ADDRESSES[of]}${path}${query === '' ? '' : `?${query}`}`)}${key}`;
}

function sectionOf(entry: Entry): string {
  const {
    method,
    path,
    summary,
    description,
    request,
    response,
    errors,
    example,
    answer,
    events = [],
    of,
  } = entry;
  const json = JSON.stringify(answer, null, 1) ?? 'npm run examples has not written it yet';
  const data =
    of === 'verifier'
      ? ''
      : ` data-method="${method}" data-path="${path}" data-example="${escaped(JSON.stringify(example)).replaceAll('"', '&quot;')}"`;
  return [
    `<section class="reference-part" id="${path.slice(1)}"${data}><h3><span class="method">${method}</span> ${path}</h3>`,
    `<p>${escaped(summary)}. ${escaped(description)}</p>`,
    `${fieldsTable(request)}<pre class="call" tabindex="0">${escapedCode(callOf(entry))}</pre>`,
    `<h4>Answer</h4><pre tabindex="0">${escapedCode(json)}</pre><details><summary>Fields of the answer</summary>${fieldsTable(response)}</details>`,
    ...(errors.length > 0 ? [`<h4>Errors</h4><p>${errors.join(', ')}</p>`] : []),
    ...(events.length > 0
      ? [`<h4>Event for webhooks</h4><p>${events.map((event) => `<code>${event}</code>`).join(', ')}</p>`]
      : []),
    '</section>',
  ].join('\n');
}

function fieldsTable(schema: Schema): string {
  const rows = fieldsOf(schema, '').map(
    ([name, type, text]) => `<tr><td><code>${name}</code><td>${escaped(type)}<td>${escaped(text)}`,
  );
  return rows.length === 0 ? '' : `<table>\n${rows.join('\n')}\n</table>`;
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
  return [
    `<details class="reference-part" id="${name.replaceAll(' ', '-')}"><summary><b>${name}</b> ${escaped(command.summary())}</summary>${table}</details>`,
  ];
}
