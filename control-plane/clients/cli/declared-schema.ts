import { readFileSync } from 'node:fs';

/** Definitions of what files may declare, by kind. */
type Definitions = Readonly<Record<string, { readonly properties: Readonly<Record<string, unknown>> }>>;

/** Reads the schema of declared files, which `npm run docs` writes. It lies beside the command line's main module. */
export const declaredDefinitions = (): Definitions =>
  JSON.parse(readFileSync(new URL('./declared.schema.json', import.meta.url), 'utf8')).definitions;
