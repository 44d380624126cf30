// Package vagrant tests vagrant/: its scripts against trees that look like the kernel's, its unit and its Vagrantfile with the tools that are
// there, and, where make vagrant-test asks for it, the machines themselves.
package vagrant
