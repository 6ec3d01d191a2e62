module.exports = {
  siteMetadata: { title: "Hello from Gatsby" },
};
