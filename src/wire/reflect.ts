// A module of its own, imported before x509: the bundler runs an imported CommonJS package where the body of its
// importer begins, and the bodies of that importer's other imports come before that.
import "reflect-metadata";
