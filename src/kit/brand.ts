declare const brand: unique symbol;

/** A `T` that carries a name the compiler checks, so that two kinds of string cannot be mixed up. */
export type Brand<T, Name extends string> = T & { readonly [brand]: Name };
